"""Processes, ports, etcd and idetcd nodes for the end-to-end tests and for tools/quickstart. Standard library only."""
