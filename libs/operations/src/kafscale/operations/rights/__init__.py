"""Least privilege at etcd: roles, users and their rights."""
