"""The filter of system calls for code in a namespace: what the namespaces alone would still leave open.

A classic BPF program, written by hand: no socket but AF_UNIX (AF_VSOCK reaches a hypervisor's host through a network
namespace), no io_uring, bpf, keys, ptrace, perf, mounts or namespaces, and no memory that is not counted with a process
(memfd, System V). ``clone3`` does not exist: the C library then uses ``clone``, whose flags can be read.
"""

from __future__ import annotations

import errno
import platform
import struct
from collections.abc import Mapping
from typing import Any

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _ERRNO, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16
_AF_UNIX = 1
#: CLONE_NEWTIME, NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET.
_NEW_NAMESPACE = 0x7E020080
_X32 = 0x40000000

#: The same on every architecture: io_uring, the new mount calls, pidfd_getfd, memfd_secret.
_COMMON = (*range(425, 434), 438, 442, 447)
_COMMON_NAMES = (
    "io_uring_setup io_uring_enter io_uring_register open_tree move_mount fsopen fsconfig fsmount fspick pidfd_getfd"
    " mount_setattr memfd_secret"
).split()
_NAMES = (
    "ptrace mount umount2 pivot_root chroot swapon swapoff reboot sethostname setdomainname init_module delete_module"
    " finit_module kexec_load kexec_file_load add_key request_key keyctl unshare setns perf_event_open process_vm_readv"
    " process_vm_writev kcmp bpf userfaultfd open_by_handle_at name_to_handle_at acct quotactl syslog personality"
    " lookup_dcookie memfd_create shmget msgget semget mq_open"
).split()
_NUMBERS: Mapping[str, tuple[int, int, int, int, tuple[int, ...]]] = {
    # The architecture, socket, socketpair, clone, and the calls of _NAMES.
    "x86_64": (
        0xC000003E, 41, 53, 56,
        (101, 165, 166, 155, 161, 167, 168, 169, 170, 171, 175, 176, 313, 246, 320, 248, 249, 250, 272, 308, 298, 310,
         311, 312, 321, 323, 304, 303, 163, 179, 103, 135, 212, 319, 29, 68, 64, 240),
    ),
    "aarch64": (
        0xC00000B7, 198, 199, 220,
        (117, 40, 39, 41, 51, 224, 225, 142, 161, 162, 105, 106, 273, 104, 294, 217, 218, 219, 97, 268, 241, 270, 271,
         272, 280, 282, 265, 264, 89, 60, 116, 92, 18, 279, 194, 186, 190, 180),
    ),
}  # fmt: skip
_CLONE3 = 435
#: Calls that only x86-64 has: iopl, ioperm, modify_ldt, nfsservctl, uselib.
_MORE = {"x86_64": (172, 173, 154, 180, 134)}


def program(machine: str | None = None) -> bytes:
    """Return the filter for a machine.

    Raises:
        LookupError: the machine's calls are not known here.
    """
    name = machine or platform.machine()
    if name not in _NUMBERS:
        raise LookupError(f"the system calls of the machine {name} are not known; supported are x86_64 and aarch64")
    architecture, socket, socketpair, clone, denied = _NUMBERS[name]
    assert len(denied) == len(_NAMES)  # noqa: S101 - two lists of the same calls
    steps = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUAL, 1, 0, architecture),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER),
        (_AT_LEAST, 0, 1, _X32),
        (_RETURN, 0, 0, _KILL),
    ]
    for number in (*denied, *_COMMON, *_MORE.get(name, ())):
        steps += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _ERRNO | errno.EPERM)]
    steps += [(_EQUAL, 0, 1, _CLONE3), (_RETURN, 0, 0, _ERRNO | errno.ENOSYS)]
    for number in (socket, socketpair):
        steps += [
            (_EQUAL, 0, 4, number),
            (_LOAD, 0, 0, _FIRST_ARGUMENT),
            (_EQUAL, 1, 0, _AF_UNIX),
            (_RETURN, 0, 0, _ERRNO | errno.EAFNOSUPPORT),
            (_RETURN, 0, 0, _ALLOW),
        ]
    steps += [
        (_EQUAL, 0, 4, clone),
        (_LOAD, 0, 0, _FIRST_ARGUMENT),
        (_ANY_BIT, 0, 1, _NEW_NAMESPACE),
        (_RETURN, 0, 0, _ERRNO | errno.EPERM),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _ALLOW),
    ]
    return b"".join(struct.pack("=HBBI", *step) for step in steps)


def container_profile() -> dict[str, Any]:
    """Return the same filter as a container's engine takes it, in the form of the OCI's runtime specification."""
    bits = [1 << place for place in range(32) if _NEW_NAMESPACE >> place & 1]

    def denied(names: list[str], error: int, args: list[dict[str, Any]] | None = None) -> dict[str, Any]:
        return {"names": names, "action": "SCMP_ACT_ERRNO", "errnoRet": error, "args": args or []}

    return {
        "defaultAction": "SCMP_ACT_ALLOW",
        "syscalls": [
            denied([*_NAMES, *_COMMON_NAMES], errno.EPERM),
            denied(["clone3"], errno.ENOSYS),
            denied(
                ["socket", "socketpair"], errno.EAFNOSUPPORT, [{"index": 0, "value": _AF_UNIX, "op": "SCMP_CMP_NE"}]
            ),
            *(
                denied(
                    ["clone"], errno.EPERM, [{"index": 0, "value": bit, "valueTwo": bit, "op": "SCMP_CMP_MASKED_EQ"}]
                )
                for bit in bits
            ),
        ],
    }
