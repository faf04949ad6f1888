"""Fixed dates in files: what packages write into a file as its date, or as that of the parts of an
archive, would otherwise differ from run to run."""

import datetime
import os
import types
from zipfile import ZipFile, ZipInfo

# The first one that a zip archive can have.
WRITTEN = datetime.datetime(1980, 1, 1)


class Stopped(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return WRITTEN.replace(tzinfo=tz)


class Archive(ZipFile):
    """An archive whose members carry no date."""

    def open(self, name, mode="r", *args, **options):
        if mode == "w" and isinstance(name, ZipInfo):
            name.date_time = WRITTEN.timetuple()[:6]
        return super().open(name, mode, *args, **options)


def set_epoch():
    """For packages that look for it, matplotlib and reportlab among them
    (reproducible-builds.org/specs/source-date-epoch)."""
    os.environ.setdefault("SOURCE_DATE_EPOCH", str(int(WRITTEN.replace(tzinfo=datetime.UTC).timestamp())))


def set_xlsxwriter(core):
    """A workbook without a date of its own gets the fixed one."""
    set_properties = core.Core._set_properties

    def with_date(self, properties):
        set_properties(self, {"created": WRITTEN, **properties})

    core.Core._set_properties = with_date


def set_openpyxl_properties(core):
    core.datetime = types.SimpleNamespace(datetime=Stopped, timezone=datetime.timezone)


def set_openpyxl_writer(excel):
    set_openpyxl_properties(excel)
    excel.ZipFile = Archive
