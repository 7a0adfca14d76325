"""Who a client is: SASL between the socket and the gateway."""
