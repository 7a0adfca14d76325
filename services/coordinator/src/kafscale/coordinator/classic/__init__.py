"""The classic consumer group (JoinGroup, SyncGroup, Heartbeat, LeaveGroup): a pure machine, see `machine`."""
