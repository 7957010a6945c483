"""How a process ended that is not our child, told by the kernel through a descriptor that we held meanwhile.

PIDFD_GET_INFO with PIDFD_INFO_EXIT (include/uapi/linux/pidfd.h) needs Linux 6.15. Older kernels tell nothing.
"""

from __future__ import annotations

import fcntl
import os
import struct
import time
from typing import Final

import anyio

from hive_subagent_daemon.values import Exit, Exited, ExitUnknown, Signalled

# struct pidfd_info, first published size: __u64 mask at 0, __s32 exit_code (a wait status) at 60.
_SIZE: Final = 64
_PIDFD_GET_INFO: Final = (3 << 30) | (_SIZE << 16) | (0xFF << 8) | 11  # _IOWR(PIDFS_IOCTL_MAGIC, 11, …)
_PIDFD_INFO_EXIT: Final = 1 << 3
# The exit is told once the process is reaped, which is for its new parent to do: systemd does it at once, a
# container's init may look only every two seconds (measured).
REAPED_SECONDS: Final = 5.0
_PAUSE_SECONDS: Final = 0.005


async def exit_of(pidfd: int) -> Exit:
    """Return how the process behind a readable pidfd ended; unknown where the kernel does not tell."""
    deadline = time.monotonic() + REAPED_SECONDS
    while True:
        try:
            told = _info(pidfd)
        except OSError:  # ENOTTY or EINVAL: an older kernel; ESRCH: not told for this process
            return ExitUnknown()
        mask, status = struct.unpack_from("=Q", told)[0], struct.unpack_from("=i", told, 60)[0]
        if mask & _PIDFD_INFO_EXIT:
            return _as_exit(status)
        if time.monotonic() > deadline:
            return ExitUnknown()
        await anyio.sleep(_PAUSE_SECONDS)


def _info(pidfd: int) -> bytes:
    request = bytearray(struct.pack("=Q", _PIDFD_INFO_EXIT).ljust(_SIZE, b"\0"))
    fcntl.ioctl(pidfd, _PIDFD_GET_INFO, request)
    return bytes(request)


def _as_exit(status: int) -> Exit:
    code = os.waitstatus_to_exitcode(status)
    return Exited(code) if code >= 0 else Signalled(-code)
