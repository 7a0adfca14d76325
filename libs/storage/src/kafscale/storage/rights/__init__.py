"""What each role may do at etcd and at the object store: two tables, from which users, roles and policies are made."""
