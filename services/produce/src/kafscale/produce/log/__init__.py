"""The partition writer: everything between a record set and its acknowledgement, without I/O."""
