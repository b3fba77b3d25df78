"""A stand-in for what idetcd_rendezvous uses of PyTorch, which Debian does not have: the interface as PyTorch 2.5 and later
publish it (torch.distributed.elastic.rendezvous, torch.distributed.TCPStore), with the same names, parameters and defaults.
PyTorch itself has not been run with it."""
