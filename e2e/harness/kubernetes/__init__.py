"""A real Kubernetes of one node, for the scenarios with the mark `k8s`. `e2e/kubernetes/run.sh` gives it namespaces."""
