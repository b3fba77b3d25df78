"""A cluster under random faults, and what must hold meanwhile and afterwards. tools/chaos runs it, and so do the tests.

    rig        three etcd members, nodes that speak to them through links, and every process's end
    proxy      the links: cut, black-holed in either direction, slowed down
    faults     which fault hits which process, and when, from a seed
    operators  an operator, who touches names and compacts the history, in a thread of its own
    prober     asks every node all the time and knows within which moments an answer was given
    store      a client of etcd over its JSON gateway; whose moments bound those of etcd's revisions
    ownership  a name belongs to one node at a time: pure checks over what was asked, and over etcd's history
    mirror     every node's table is etcd's: pure checks likewise
    runs       the two runs with an etcd, from start to verdict
    partitions the run without one: machines that found a cluster, and reach each other at random
    cli        tools/chaos

Standard library only, but for what harness needs. Every moment is CLOCK_BOOTTIME, which all processes of a machine
share, and which the server counts its leases by."""
