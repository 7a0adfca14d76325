"""What an operator does with a cluster: look, check, repair, recover. Neither a command nor a terminal."""
