"""Applies to this process what lines of a systemd unit would, without systemd: privileges, mounts,
namespaces, limits and a filter of system calls. For try-hardening, which see.

Each function apply_KEY takes the value of a line `Key=value` and raises Cannot where this machine, or
this user, does not let it be applied. Lines that concern system calls end up in one Filter.
"""

import ctypes
import errno
import os
import pathlib
import platform
import pwd
import re
import resource
import stat
import struct
import subprocess

LIBC = ctypes.CDLL(None, use_errno=True)

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWNET, CLONE_NEWUSER = 0x20000, 0x4000000, 0x40000000, 0x10000000
NAMESPACES = 0x20000 | 0x2000000 | 0x4000000 | 0x8000000 | 0x10000000 | 0x20000000 | 0x40000000 | 0x80
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_REMOUNT, MS_BIND = 1, 2, 4, 32, 4096
MS_REC, MS_PRIVATE, MS_SLAVE = 16384, 1 << 18, 1 << 19
PR_SET_NO_NEW_PRIVS, PR_CAPBSET_DROP, PR_CAP_AMBIENT = 38, 24, 47
PR_CAP_AMBIENT_CLEAR_ALL = 4
AUDIT_ARCHES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
MACHINE = platform.machine()


class Cannot(Exception):
    """A line that cannot be applied here, and why."""


def check(result, what):
    if result < 0:
        number = ctypes.get_errno()
        raise Cannot(f"{what}: {errno.errorcode.get(number, number)}")
    return result


# ---- system calls ------------------------------------------------------------------------------


def read_sets():
    """The sets of syscall-sets by their names."""
    sets, name = {}, None
    path = pathlib.Path(__file__).with_name("syscall-sets")
    for line in path.read_text(encoding="ascii").splitlines():
        if line.startswith("@"):
            name = line
            sets[name] = set()
        elif line.startswith(" "):
            sets[name] |= set(line.split())
    return sets


def read_numbers():
    """The numbers of this machine's system calls, as its headers have them."""
    command = ["cc", "-E", "-dM", "-include", "sys/syscall.h", "-x", "c", os.devnull]
    try:
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        raise Cannot(f"the numbers of system calls are not known: {error}") from None
    return {name: int(number) for name, number in re.findall(r"#define __NR_(\w+) (\d+)\n", text)}


class Filter:
    """Rules of system calls, the first that fits counts: (number, tests of arguments, errno or None
    to allow). A test is (argument, mask, value, whether it is to be equal)."""

    NOTIFY, ALLOW, ERRNO, KILL = 0x7FC00000, 0x7FFF0000, 0x00050000, 0x80000000

    def __init__(self):
        self.numbers = None
        self.rules = []
        self.only = None  # numbers; all else is refused
        self.refused = set()
        self.native = False

    def number(self, name):
        if self.numbers is None:
            self.numbers = read_numbers()
        return self.numbers.get(name)

    def refuse(self, name, *tests, error=errno.EPERM):
        number = self.number(name)
        if number is not None:
            self.rules.append((number, tests, error))

    def empty(self):
        return not (self.rules or self.only is not None or self.refused or self.native)

    def error_of(self, number, arguments):
        """The error that a refused call is told."""
        for candidate, tests, error in self.rules:
            if candidate == number and all(
                    ((arguments[i] & mask) == value) == equal for i, mask, value, equal in tests):
                return error
        return errno.EPERM

    def program(self, notify):
        """The filter as BPF. `notify`: whoever listens is asked, and can write down what it was."""

        def refusal(error):
            return self.NOTIFY if notify else self.ERRNO | error

        code = [(0x20, 0, 0, 4),  # the architecture
                (0x15, 1, 0, AUDIT_ARCHES[MACHINE]),
                (0x06, 0, 0, self.KILL if self.native else self.ALLOW),
                (0x20, 0, 0, 0)]  # the number
        if MACHINE == "x86_64":  # x32
            code += [(0x35, 0, 1, 0x40000000), (0x06, 0, 0, self.ERRNO | errno.ENOSYS)]
        for number, tests, error in self.rules:
            body = []
            for i, mask, value, equal in tests:
                body += [(0x20, 0, 0, 16 + 8 * i), (0x54, 0, 0, mask), ("test", equal, 0, value)]
            body.append((0x06, 0, 0, refusal(error)))
            body.append((0x20, 0, 0, 0))  # fits not: the number again
            end = len(body) - 1
            for at, (kind, equal, _, value) in enumerate(body):
                if kind == "test":
                    away = end - at - 1
                    body[at] = (0x15, 0, away, value) if equal else (0x15, away, 0, value)
            code += [(0x15, 0, len(body), number), *body]
        if self.only is not None:
            for number in sorted(self.only - self.refused):
                code += [(0x15, 0, 1, number), (0x06, 0, 0, self.ALLOW)]
            code.append((0x06, 0, 0, refusal(errno.EPERM)))
        else:
            for number in sorted(self.refused):
                code += [(0x15, 0, 1, number), (0x06, 0, 0, refusal(errno.EPERM))]
            code.append((0x06, 0, 0, self.ALLOW))
        return code

    def install(self, notify):
        """Needs no_new_privs, or CAP_SYS_ADMIN. The descriptor to listen at, if `notify`."""
        code = self.program(notify)
        packed = b"".join(struct.pack("=HBBI", *one) for one in code)
        buffer = ctypes.create_string_buffer(packed, len(packed))
        program = struct.pack("@H6xP", len(code), ctypes.addressof(buffer))
        return check(LIBC.syscall(self.number("seccomp"), 1, 8 if notify else 0,
                                  ctypes.create_string_buffer(program, len(program))), "seccomp")


# ---- mounts ------------------------------------------------------------------------------------


def mount(source, target, kind=None, flags=0, data=None):
    def encode(text):
        return text.encode() if text is not None else None

    check(LIBC.mount(encode(source), encode(target), encode(kind), ctypes.c_ulong(flags),
                     encode(data)), f"mount {target}")


def mount_points():
    text = pathlib.Path("/proc/self/mountinfo").read_text(encoding="utf-8")
    return [re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), line.split()[4])
            for line in text.splitlines()]


def make_read_only(target):
    """A mount keeps its other flags only if they are said again."""
    flags = os.statvfs(target).f_flag & 0x40F  # ro nosuid nodev noexec, noatime
    mount(None, target, flags=MS_BIND | MS_REMOUNT | MS_RDONLY | flags)


def bind_read_only(path):
    if os.path.exists(path):
        mount(path, path, flags=MS_BIND | MS_REC)
        make_read_only(path)


def below(path, *roots):
    return any(path == root or path.startswith(root + "/") for root in roots)


def character_devices(pattern):
    """The major numbers that `char-PATTERN` means."""
    majors, text = set(), pathlib.Path("/proc/devices").read_text(encoding="ascii")
    for number, name in re.findall(r"^ *(\d+) (\S+)$", text.split("Block devices:")[0], re.M):
        if name == pattern:
            majors.add(int(number))
    return majors


STANDARD_NODES = {"null", "zero", "full", "random", "urandom", "tty", "ptmx"}


# ---- what a unit says --------------------------------------------------------------------------


class Confinement:
    """Lines to be applied, and the facts that apply_… need."""

    def __init__(self, place, uid):
        self.place = place  # the daemon's own directory, which stays writable
        self.uid = uid
        self.filter = Filter()
        self.sets = read_sets()  # while they can be reached
        self.late = []  # after the change of user
        self.own_mounts = False

    def need_mounts(self):
        if self.own_mounts:
            return
        ids = os.getuid(), os.getgid()
        if LIBC.unshare(CLONE_NEWNS) < 0:
            check(LIBC.unshare(CLONE_NEWUSER | CLONE_NEWNS), "a mount namespace")
            for name, text in (("setgroups", "deny"), ("uid_map", f"{ids[0]} {ids[0]} 1"),
                               ("gid_map", f"{ids[1]} {ids[1]} 1")):
                pathlib.Path(f"/proc/self/{name}").write_text(text, encoding="ascii")
        mount(None, "/", flags=MS_REC | MS_SLAVE)
        self.own_mounts = True

    # Privileges.

    def apply_NoNewPrivileges(self, _):
        check(LIBC.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "prctl")

    def apply_CapabilityBoundingSet(self, value):
        if value:
            raise Cannot("only an empty set is known here")
        last = int(pathlib.Path("/proc/sys/kernel/cap_last_cap").read_text(encoding="ascii"))

        def drop():
            for capability in range(last + 1):
                check(LIBC.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0), "dropping a capability")

        if os.geteuid() != 0:
            raise Cannot("needs root; without it there are no capabilities to drop")
        self.late.insert(0, drop)

    def apply_AmbientCapabilities(self, _):
        check(LIBC.prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0), "prctl")

    def apply_User(self, value):
        if os.geteuid() != 0:
            raise Cannot("needs root")
        try:
            entry = pwd.getpwnam(value)
            uid, gid = entry.pw_uid, entry.pw_gid
        except KeyError:
            uid = gid = self.uid
        os.chown(self.place, uid, gid)

        def change():
            os.setgroups([])
            os.setresgid(gid, gid, gid)
            os.setresuid(uid, uid, uid)

        self.late.append(change)

    def apply_Group(self, _):
        if os.geteuid() != 0:
            raise Cannot("needs root; goes with User=")

    def apply_UMask(self, value):
        os.umask(int(value, 8))

    def apply_LimitNOFILE(self, value):
        count = int(value)
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (count, count))
        except (OSError, ValueError) as error:
            raise Cannot(str(error)) from None

    def apply_LimitCORE(self, value):
        resource.setrlimit(resource.RLIMIT_CORE, (int(value), int(value)))

    def apply_KeyringMode(self, _):
        number = self.filter.number("keyctl")
        check(LIBC.syscall(number, 1, None), "keyctl")

    # Files.

    def apply_ProtectSystem(self, _):
        self.need_mounts()
        mount(self.place, self.place, flags=MS_BIND)
        for path in mount_points():
            if below(path, "/dev", "/proc", "/sys", self.place):
                continue
            try:
                make_read_only(path)
            except (Cannot, OSError):
                if path == "/":
                    raise
        try:
            pathlib.Path("/usr/.gpubufd-probe").touch()
        except OSError:
            return
        os.unlink("/usr/.gpubufd-probe")
        raise Cannot("/usr is still writable")

    def hide(self, *paths):
        self.need_mounts()
        for path in paths:
            if os.path.isdir(path) and not below(self.place, path):
                mount("tmpfs", path, "tmpfs", MS_RDONLY | MS_NOSUID | MS_NODEV, "mode=000")

    def apply_ProtectHome(self, _):
        self.hide("/home", "/root", "/run/user")

    def apply_PrivateTmp(self, _):
        if below(self.place, "/tmp", "/var/tmp"):
            raise Cannot("what is needed lies in /tmp itself")
        self.need_mounts()
        for path in ("/tmp", "/var/tmp"):
            mount("tmpfs", path, "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777")

    def apply_PrivateMounts(self, _):
        self.need_mounts()

    def apply_ProtectKernelTunables(self, _):
        self.need_mounts()
        for path in ("/proc/sys", "/proc/irq", "/proc/fs", "/proc/acpi", "/sys"):
            bind_read_only(path)

    def apply_ProtectControlGroups(self, _):
        self.need_mounts()
        bind_read_only("/sys/fs/cgroup")

    def apply_ProtectKernelModules(self, _):
        self.hide("/usr/lib/modules")
        for name in self.sets["@module"]:
            self.filter.refuse(name)

    def apply_ProtectProc(self, value):
        self.need_mounts()
        mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV, f"hidepid={value}")

    def apply_ProcSubset(self, _):
        self.need_mounts()
        mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV, "subset=pid")

    def forbid_nodes(self, allowed):
        """The device files below /dev that `allowed` does not want cannot be opened any more."""
        self.need_mounts()
        for directory, _, files in os.walk("/dev"):
            for name in files:
                path = os.path.join(directory, name)
                status = os.lstat(path)
                if not stat.S_ISCHR(status.st_mode) and not stat.S_ISBLK(status.st_mode):
                    continue
                if name in STANDARD_NODES or "pts" in path or allowed(status):
                    continue
                mount(path, path, flags=MS_BIND)
                mount(None, path, flags=MS_BIND | MS_REMOUNT | MS_NODEV | MS_NOSUID)

    def apply_DeviceAllow(self, value):
        """All lines of it at once, and DevicePolicy=closed with them."""
        majors = set()
        for line in value.split("\n"):
            majors |= character_devices(line.split()[0].removeprefix("char-"))
        self.forbid_nodes(lambda status: stat.S_ISCHR(status.st_mode)
                          and os.major(status.st_rdev) in majors)

    def apply_PrivateDevices(self, _):
        self.forbid_nodes(lambda status: False)

    # Namespaces.

    def apply_PrivateNetwork(self, _):
        check(LIBC.unshare(CLONE_NEWNET), "a network namespace")

    def apply_ProtectHostname(self, _):
        check(LIBC.unshare(CLONE_NEWUTS), "a namespace for names")
        for name in ("sethostname", "setdomainname"):
            self.filter.refuse(name)

    def apply_PrivateUsers(self, _):
        """root and the service's user are themselves, everybody else is nobody."""
        if os.geteuid() != 0:
            raise Cannot("needs root")
        ours, theirs = os.pipe(), os.pipe()
        parent = os.getpid()
        child = os.fork()
        if child == 0:  # the map of somebody who left has to be written from outside
            os.read(ours[0], 1)
            text = "0 0 1\n" + (f"{self.uid} {self.uid} 1\n" if self.uid else "")
            status = 0
            try:
                for name in ("uid_map", "gid_map"):
                    pathlib.Path(f"/proc/{parent}/{name}").write_text(text, encoding="ascii")
            except OSError as error:
                status = error.errno
            os.write(theirs[1], bytes([status]))
            os._exit(0)
        try:
            check(LIBC.unshare(CLONE_NEWUSER), "a user namespace")
        finally:
            os.write(ours[1], b"!")
            status = os.read(theirs[0], 1)[0]
            os.waitpid(child, 0)
        if status:
            raise Cannot(f"mapping users: {os.strerror(status)}")

    # System calls.

    def apply_RestrictNamespaces(self, _):
        for name in ("unshare", "clone"):
            for bit in range(32):
                if NAMESPACES >> bit & 1 and not (name == "clone" and 1 << bit == 0x80):
                    self.filter.refuse(name, (0, 1 << bit, 1 << bit, True))
        self.filter.refuse("setns")
        self.filter.refuse("clone3", error=errno.ENOSYS)

    def apply_RestrictAddressFamilies(self, value):
        numbers = {"AF_UNIX": 1, "AF_INET": 2, "AF_INET6": 10, "AF_NETLINK": 16}
        tests = [(0, 0xFFFFFFFF, numbers[word], False) for word in value.split()]
        self.filter.refuse("socket", *tests, error=errno.EAFNOSUPPORT)

    def apply_RestrictRealtime(self, _):
        tests = [(1, 0xFFFFFFFF, policy, False) for policy in (0, 3, 5)]
        self.filter.refuse("sched_setscheduler", *tests)

    def apply_RestrictSUIDSGID(self, _):
        modes = {"chmod": 1, "fchmod": 1, "fchmodat": 2, "fchmodat2": 2, "mkdir": 1, "mkdirat": 2,
                 "mknod": 1, "mknodat": 2, "creat": 1}
        for bit in (0o4000, 0o2000):
            for name, i in modes.items():
                self.filter.refuse(name, (i, bit, bit, True))
            self.filter.refuse("open", (1, 0o100, 0o100, True), (2, bit, bit, True))
            self.filter.refuse("openat", (2, 0o100, 0o100, True), (3, bit, bit, True))
        self.filter.refuse("openat2", error=errno.ENOSYS)

    def apply_MemoryDenyWriteExecute(self, _):
        self.filter.refuse("mmap", (2, 6, 6, True))
        self.filter.refuse("mprotect", (2, 4, 4, True))
        self.filter.refuse("pkey_mprotect", (2, 4, 4, True))
        self.filter.refuse("shmat", (2, 0o100000, 0o100000, True))

    def apply_LockPersonality(self, _):
        now = LIBC.personality(ctypes.c_ulong(0xFFFFFFFF))
        self.filter.refuse("personality", (0, 0xFFFFFFFF, now, False),
                           (0, 0xFFFFFFFF, 0xFFFFFFFF, False))

    def apply_ProtectClock(self, _):
        for name in self.sets["@clock"]:
            self.filter.refuse(name)

    def apply_ProtectKernelLogs(self, _):
        self.filter.refuse("syslog")

    def apply_SystemCallArchitectures(self, _):
        self.filter.native = True

    def apply_SystemCallFilter(self, value):
        """All lines of it at once."""
        for line in value.split("\n"):
            names = set()
            for word in line.removeprefix("~").split():
                names |= self.sets[word] if word.startswith("@") else {word}
            numbers = {self.filter.number(name) for name in names} - {None}
            if line.startswith("~"):
                self.filter.refused |= numbers
            else:
                standard = {self.filter.number(name) for name in self.sets["@default"]} - {None}
                self.filter.only = (self.filter.only or standard) | numbers

    # Only systemd can: what concerns its control groups, and what it does after the end.

    def apply_IPAddressDeny(self, _):
        raise Cannot("a rule of a control group")

    def apply_RemoveIPC(self, _):
        raise Cannot("done by systemd when the service has ended")

    def apply(self, lines):
        """Everything but the system calls, in an order in which nothing takes away what the rest
        needs. `lines`: (key, value)."""
        order = ("KeyringMode", "PrivateUsers", "PrivateMounts", "PrivateNetwork", "ProtectHostname")
        last = ("ProtectSystem", "ProtectProc", "ProcSubset", "NoNewPrivileges")

        def rank(line):
            key = line[0]
            return order.index(key) if key in order else (50 + last.index(key) if key in last else 20)

        for key, value in sorted(lines, key=rank):
            getattr(self, f"apply_{key}")(value)
        for action in self.late:
            action()


def known(key):
    return hasattr(Confinement, f"apply_{key}")
