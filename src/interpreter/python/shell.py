"""An IPython shell whose displays, results and errors become events."""

import builtins
import getpass
import importlib.machinery
import importlib.util
import io
import os
import subprocess
import sys
import types

from IPython.core.displayhook import DisplayHook
from IPython.core.displaypub import DisplayPublisher
from IPython.core.error import StdinNotImplementedError
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

from . import wire as protocol


class Stream(io.TextIOWrapper):
    """sys.stdout and sys.stderr: unbuffered, so that children's output stands in its place."""

    def __init__(self, fd, wire):
        super().__init__(io.FileIO(fd, "w", closefd=False), "utf-8", "backslashreplace", write_through=True)
        self._wire = wire

    def write(self, text):
        if self._wire.last is not self:
            self._wire.mark(self)
        return super().write(text)

    def isatty(self):
        return False

    def close(self):
        """A cell that closes its streams would silence every later one."""


class Publisher(DisplayPublisher):
    wire = None

    def publish(self, data, metadata=None, source=None, *, transient=None, update=False, **kwargs):
        self.wire.send("display", data=protocol.bundle(data))

    def clear_output(self, wait=False):
        """What was shown stays in the record."""


class Hook(DisplayHook):
    wire = None

    def write_output_prompt(self):
        pass

    def write_format_data(self, format_dict, md_dict=None):
        self.wire.send("result", data=protocol.bundle(format_dict))

    def finish_displayhook(self):
        self._is_active = False


class Comms:
    """A front end's way to talk to widgets. There is none: what is registered hears nothing, what is sent is
    dropped."""

    def register_target(self, name, callback):
        pass

    def unregister_target(self, name, callback):
        pass

    def register_comm(self, comm):
        return comm.comm_id

    def unregister_comm(self, comm):
        pass

    def get_comm(self, comm_id):
        return None


class Comm:
    """One such way, as the package `comm` makes it."""

    def __init__(self, target_name="", data=None, metadata=None, buffers=None, comm_id="", **kwargs):
        self.target_name, self.comm_id, self.primary = target_name, comm_id, True

    def open(self, *args, **kwargs):
        pass

    send = close = on_msg = on_close = open


class Shell(InteractiveShell):
    error = None
    kernel = types.SimpleNamespace(comm_manager=Comms())

    def _showtraceback(self, etype, evalue, stb):
        if self.error is not None:
            print(self.error["traceback"], file=self.stderr)
        try:
            message = str(evalue)
        except Exception:
            message = "<unprintable>"
        text = self.InteractiveTB.stb2text(stb)
        self.error = {"ename": getattr(etype, "__name__", str(etype)), "evalue": message, "traceback": text}

    def system(self, cmd):
        """`!cmd`. Children write to the same files as the cell does: no pty, no copying."""
        command = self.var_expand(cmd, depth=1)
        code = subprocess.call(command, shell=True, executable="/bin/bash" if os.path.exists("/bin/bash") else None)
        self.user_ns["_exit_code"] = code

    def enable_gui(self, gui=None):
        """No event loops here."""

    def ask_exit(self):
        """`exit` ends nothing: the host ends sessions."""


def comms_module():
    """In place of the package `comm`, where the environment lacks it."""
    module = types.ModuleType("comm", "Comms that nobody hears.")
    module.__spec__ = importlib.machinery.ModuleSpec("comm", None)
    module.create_comm, module.get_comm_manager = Comm, lambda: Shell.kernel.comm_manager
    return module


def refuse_input(prompt="", *args, **kwargs):
    raise StdinNotImplementedError("input() is not available: nobody is there to answer. Set the value in the code.")


def build(wire, stdout, stderr):
    """The shell. Nothing heavy is imported here; packages load when a cell asks for them."""
    config = Config()
    config.HistoryManager.enabled = False
    config.InteractiveShell.colors = "nocolor"
    config.InteractiveShell.term_title = False
    Publisher.wire = Hook.wire = wire
    shell = Shell.instance(
        config=config,
        ipython_dir=os.environ["IPYTHONDIR"],
        display_pub_class=Publisher,
        displayhook_class=Hook,
        user_module=None,
    )
    shell.stderr = stderr
    builtins.input = refuse_input
    if importlib.util.find_spec("comm") is None:
        sys.modules["comm"] = comms_module()
    getpass.getpass = refuse_input
    return shell


def run(shell, code):
    """Run a cell; returns its error, if it had one."""
    shell.error = None
    try:
        failed = not shell.run_cell(code, store_history=True).success
    except KeyboardInterrupt:  # between two parts of IPython
        failed = True
    if failed and shell.error is None:
        shell.error = {"ename": "KeyboardInterrupt", "evalue": "", "traceback": "KeyboardInterrupt"}
    if not failed and shell.error is not None:  # shown by a formatter; the cell itself went on
        print(shell.error["traceback"], file=shell.stderr)
    return shell.error if failed else None
