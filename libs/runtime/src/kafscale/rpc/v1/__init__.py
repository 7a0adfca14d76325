"""Calls between services; generated from proto/kafscale/rpc."""
