"""gRPC in memory: channels and servers of `grpc.aio` without sockets and threads, over a network that a test rules."""
