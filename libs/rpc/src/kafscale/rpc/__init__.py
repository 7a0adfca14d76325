"""Messages and services between the five services; generated from proto/."""
