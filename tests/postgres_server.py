"""A real PostgreSQL server for a test session: its own data in a temporary folder, reached by a unix socket only."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path


def binaries() -> Path | None:
    """The folder of `initdb` and `postgres`: of the path, else the newest that Debian has installed."""
    if (found := shutil.which("initdb")) is not None:
        return Path(found).resolve().parent
    versions = [path.parent for path in Path("/usr/lib/postgresql").glob("*/bin/initdb")]
    return max(versions, key=lambda path: float(path.parent.name), default=None)


class PostgresServer:
    """A server that can be stopped, killed and started again; durable as in production (fsync is on)."""

    def __init__(self, programs: Path) -> None:
        self.programs = programs
        self.folder = Path(tempfile.mkdtemp(prefix="pg"))  # short: a socket's path has 107 characters at most
        self._user = self._become()
        self.admin = pwd.getpwuid(os.geteuid()).pw_name if self._user is None else self._user
        self._names = 0
        self._standing: str | None = None
        for place in (self.folder, self.sockets):
            place.mkdir(exist_ok=True)
            place.chmod(0o755)
            if self._user is not None:
                shutil.chown(place, self._user)
        self._call("initdb", "-D", self._data, "--no-sync", "--encoding", "UTF8", "--locale", "C", "--auth", "trust")
        self.start()

    @property
    def sockets(self) -> Path:
        return self.folder / "s"

    @property
    def _data(self) -> str:
        return str(self.folder / "data")

    @property
    def process(self) -> int:
        """Number of the server's first process."""
        return int((self.folder / "data" / "postmaster.pid").read_text().split()[0])

    def start(self, *settings: str) -> None:
        """Start it, with settings like `fsync=off`; waits until it answers, after whatever recovery it needs."""
        self._settings = settings
        fixed = ("listen_addresses=", f"unix_socket_directories={self.sockets}")
        options = " ".join(f"-c {setting}" for setting in (*fixed, *settings))
        for attempt in range(20):  # after a kill the old server's children take a moment to notice
            log = str(self.folder / "log")
            done = self._run("pg_ctl", "start", "-w", "-D", self._data, "-l", log, "-o", options)
            if done.returncode == 0:
                return
            time.sleep(0.05 * (attempt + 1))
        raise RuntimeError(done.stderr + (self.folder / "log").read_text()[-3000:])

    def stop(self, mode: str = "fast") -> None:
        """`fast` is orderly; `immediate` is a crash: what was not written is lost."""
        self._call("pg_ctl", "stop", "-w", "-D", self._data, "-m", mode)

    def kill(self) -> None:
        """Kill -9 of the whole server."""
        first = self.process
        children = Path(f"/proc/{first}/task/{first}/children").read_text().split()
        for number in (first, *map(int, children)):
            os.kill(number, signal.SIGKILL)

    def restore(self) -> None:
        """Running and with its own settings, whatever a test did to it."""
        if self._settings or self._run("pg_ctl", "status", "-D", self._data).returncode:
            self._run("pg_ctl", "stop", "-w", "-D", self._data, "-m", "fast")
            self.start()

    def remove(self) -> None:
        """Stop it and take its data away."""
        self._run("pg_ctl", "stop", "-w", "-D", self._data, "-m", "immediate")
        shutil.rmtree(self.folder, ignore_errors=True)

    def emptied(self) -> str:
        """The URL of the server's standing database, without what the test before left in it.

        One for all: after a crash a server makes every file of every database durable, which takes its time.
        """
        if self._standing is None:
            self._standing = self.database()
        self.sql("DROP SCHEMA IF EXISTS dp_tuner CASCADE", self._standing)
        return self._standing

    def database(self, *options: str) -> str:
        """The URL of a new, empty database; options as of CREATE DATABASE."""
        self._names += 1
        name = f"ledger{self._names}"
        self.sql(f"CREATE DATABASE {name} {' '.join(options)}")
        return self.url(name)

    def role(self) -> str:
        """A new role that may log in and nothing else."""
        self._names += 1
        self.sql(f"CREATE ROLE role{self._names} LOGIN")
        return f"role{self._names}"

    @staticmethod
    def name_of(url: str) -> str:
        """The database of a URL."""
        return url.split("/")[3].split("?")[0]

    @staticmethod
    def role_of(url: str) -> str:
        """The role of a URL."""
        return url.split("//")[1].split("@")[0]

    def url(self, name: str, user: str | None = None) -> str:
        """The URL of a database, for the server's first role or another one."""
        return f"postgresql://{user or self.admin}@/{name}?host={self.sockets}"

    def sql(self, statement: str, url: str | None = None) -> list[tuple[object, ...]]:
        """Run one statement past the ledger, as the server's first role; its rows."""
        import psycopg

        name = "postgres" if url is None else self.name_of(url)
        where = {"host": str(self.sockets), "dbname": name, "user": self.admin, "options": "-c search_path=dp_tuner"}
        with psycopg.connect(**where, autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def _call(self, program: str, *words: str) -> None:
        done = self._run(program, *words)
        if done.returncode:
            raise RuntimeError(f"{program} {' '.join(words)}: {done.stdout}{done.stderr}")

    def _run(self, program: str, *words: str) -> subprocess.CompletedProcess[str]:
        # Not a pipe: the server would inherit it, and waiting for its end would wait for the server's.
        with tempfile.TemporaryFile("w+") as said:
            done = subprocess.run(
                [str(self.programs / program), *words],
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                text=True,
                timeout=300,
                env={**os.environ, "PGCTLTIMEOUT": "240"},
                check=False,
                cwd=self.folder,
                user=self._user,
                group=None if self._user is None else pwd.getpwnam(self._user).pw_gid,
                extra_groups=None if self._user is None else [],
            )
            said.seek(0)
            return subprocess.CompletedProcess(done.args, done.returncode, "", said.read())

    @staticmethod
    def _become() -> str | None:
        """Whom to run it as: `initdb` refuses root."""
        if os.geteuid() != 0:
            return None
        names = {entry.pw_name for entry in pwd.getpwall()}
        return "postgres" if "postgres" in names else "nobody"
