"""The daemon as a service of the machine that the benchmark runs in."""

from __future__ import annotations

import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tests.benchmarks.setting import STUB
from tests.support.scripted_daemon import Setting
from tests.systemd.service_harness import Service, Units

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.systemd.managers import Form


@contextmanager
def benchmark_service(form: Form, *, lines: Sequence[str] = ()) -> Iterator[Service]:
    """Yield a daemon that is not installed yet; it is shut and removed in the end.

    `lines` are for its [Service].
    """
    form.manager.wait_until_up()
    with tempfile.TemporaryDirectory(prefix="hs.", dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        service = Service(Path(folder) / "d", STUB, Setting(), form=form, units=Units(lines=lines))
        try:
            yield service
        finally:
            service.shut()
