"""The etcd client of the services: requests as values, two kinds of errors, watches that resume."""
