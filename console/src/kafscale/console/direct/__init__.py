"""What the console reads from etcd and the object store, cut to what the front door lets the login see."""
