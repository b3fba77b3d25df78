"""One node under everything at once, for as long as one likes, and what must hold meanwhile and afterwards. tools/soak runs
it, and so does a test.

    world      the names that are asked for, and what each may be answered
    program    what runs beside the run, as processes of their own:
      load         paced queries over UDP and TCP, each answer checked
      hostile      packets and connections of no good intent
      bad_upstream a server that is silent, late, wrong, cut short
    rig        etcd behind a link, two good upstreams and the bad one, the node under test, nodes that come and go
    weather    what happens when, from a seed: churn, reloads, faults
    gauges     memory, descriptors and threads of a process, once a second
    judge      whether it has held: pure checks over what was recorded
    runs       the run, from start to verdict
    cli        tools/soak

Every moment is CLOCK_BOOTTIME, which all processes of a machine share."""
