"""The calls of the system that a submission is refused: a seccomp filter, as the bytes that bubblewrap loads.

The one idea: what no exercise needs does not exist. Refused is memory that belongs to no process and so escapes the
limits (memfd, System V shared memory, message queues), another processor than the one it was given, new namespaces, and
doors into the kernel that are wide for what they are good for; of sockets there are those of programs and of the
Internet. All else is answered with "no such call" or "no such family", which libraries know from old kernels and work
around.
"""

from __future__ import annotations

import platform
import struct

# name: number on x86_64, number on aarch64
REFUSED = {
    "memfd_create": (319, 279), "memfd_secret": (447, 447), "shmget": (29, 194), "msgget": (68, 186),
    "semget": (64, 190), "mq_open": (240, 180), "userfaultfd": (323, 282), "io_uring_setup": (425, 425),
    "bpf": (321, 280), "perf_event_open": (298, 241), "add_key": (248, 217), "request_key": (249, 218),
    "keyctl": (250, 219), "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271),
    "pidfd_getfd": (438, 438), "unshare": (272, 97), "setns": (308, 268), "mount": (165, 40), "fsopen": (430, 430),
    "open_tree": (428, 428), "sched_setaffinity": (203, 122),
    "clone3": (435, 435),  # libraries then use clone, whose flags can be looked at
}  # fmt: skip
CLONE, SOCKET, PAIR = (56, 220), (41, 198), (53, 199)
FAMILIES = (1, 2, 10)  # of sockets: AF_UNIX, AF_INET, AF_INET6
MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}  # column above, name of the machine in the filter
NEW_NAMESPACES = 0x7E020000  # the flags of clone that make one
FOREIGN = 0x40000000  # numbers from here up are those of another calling convention (x32)

NUMBER, MACHINE, FIRST_ARGUMENT = 0, 4, 16  # where they stand in what a filter looks at
LOAD, EQUAL, AT_LEAST, ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
ALLOW, KILL, NO_SUCH_CALL, NO_SUCH_FAMILY = 0x7FFF0000, 0x80000000, 0x00050000 | 38, 0x00050000 | 97  # errno


def seccomp_filter(machine: str = platform.machine()) -> bytes:
    """The filter for this machine; empty where the numbers of its calls are not known here."""
    if machine not in MACHINES:
        return b""
    column, name = MACHINES[machine]
    refused = [(EQUAL, numbers[column]) for numbers in REFUSED.values()] + [(AT_LEAST, FOREIGN)]
    steps = [(LOAD, 0, 0, MACHINE), (EQUAL, 1, 0, name), (RETURN, 0, 0, KILL), (LOAD, 0, 0, NUMBER)]
    end = [
        (EQUAL, 4, 0, SOCKET[column]),
        (EQUAL, 3, 0, PAIR[column]),
        (EQUAL, 0, 6, CLONE[column]),
        (LOAD, 0, 0, FIRST_ARGUMENT),
        (ANY_BIT, 5, 4, NEW_NAMESPACES),
        (LOAD, 0, 0, FIRST_ARGUMENT),
        *((EQUAL, 2 - place, 2 * (place == 2), family) for place, family in enumerate(FAMILIES)),
        (RETURN, 0, 0, ALLOW),
        (RETURN, 0, 0, NO_SUCH_CALL),
        (RETURN, 0, 0, NO_SUCH_FAMILY),
    ]
    for place, (compare, value) in enumerate(refused):
        steps.append((compare, len(refused) - place + len(end) - 3, 0, value))  # to the last step but one
    return b"".join(struct.pack("<HBBI", *step) for step in (*steps, *end))
