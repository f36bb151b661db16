"""Conversion of UCI tables to numbers. The lists of words and the scales are public and independent of the records.

The lists of words are from UCI's documentation (adult.names, bank-additional-names.txt). A word that is not in its
list, such as Adult's ``?``, becomes all zeros. Numbers are divided by a round public constant and clipped.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainables.errors import DatasetError

if TYPE_CHECKING:
    import numpy as np

__all__ = [
    "ADULT",
    "BANK",
    "CREDIT_CARD",
    "KDDCUP",
    "WISCONSIN",
    "Category",
    "Ignored",
    "Label",
    "Number",
    "Table",
    "encode",
]


@dataclass(frozen=True)
class Number:
    """Numeric column, encoded as (value - centre) / scale and clipped to [low, 1].

    If ``log`` is true, log1p is applied to the value first. A missing value becomes 0.
    """

    name: str
    scale: float
    centre: float = 0.0
    low: float = 0.0
    log: bool = False


@dataclass(frozen=True)
class Category:
    """Column of words, encoded one-hot over a fixed list."""

    name: str
    words: tuple[str, ...]

    @classmethod
    def of(cls, name: str, words: str) -> Category:
        """Return a column. ``words`` contains the words, separated by commas."""
        return cls(name, tuple(word.strip() for word in words.split(",")))


@dataclass(frozen=True)
class Label:
    """Column with the words to predict. The class of a word is its index in the list.

    With `other`, every word that is not in the list belongs to one further class.
    """

    name: str
    words: tuple[str, ...]
    other: bool = False


@dataclass(frozen=True)
class Ignored:
    """Column that is not read."""

    name: str


Column = Number | Category | Label | Ignored


@dataclass(frozen=True)
class Table:
    """Format of a table: its columns in the order of the file, and whether the first line has the column names."""

    columns: tuple[Column, ...]
    delimiter: str = ","
    header: bool = False

    @property
    def width(self) -> int:
        """Number of features after encoding."""
        words = sum(len(column.words) for column in self.columns if isinstance(column, Category))
        return words + sum(isinstance(column, Number) for column in self.columns)


_YES_NO = "no, yes, unknown"

ADULT = Table(
    columns=(
        Number("age", 100.0),
        Category.of(
            "workclass",
            "Private, Self-emp-not-inc, Self-emp-inc, Federal-gov, Local-gov, State-gov, Without-pay, Never-worked",
        ),
        Number("fnlwgt", 1_000_000.0),
        Category.of(
            "education",
            "Bachelors, Some-college, 11th, HS-grad, Prof-school, Assoc-acdm, Assoc-voc, 9th, 7th-8th, 12th, "
            "Masters, 1st-4th, 10th, Doctorate, 5th-6th, Preschool",
        ),
        Number("education-num", 16.0),
        Category.of(
            "marital-status",
            "Married-civ-spouse, Divorced, Never-married, Separated, Widowed, Married-spouse-absent, Married-AF-spouse",
        ),
        Category.of(
            "occupation",
            "Tech-support, Craft-repair, Other-service, Sales, Exec-managerial, Prof-specialty, Handlers-cleaners, "
            "Machine-op-inspct, Adm-clerical, Farming-fishing, Transport-moving, Priv-house-serv, Protective-serv, "
            "Armed-Forces",
        ),
        Category.of("relationship", "Wife, Own-child, Husband, Not-in-family, Other-relative, Unmarried"),
        Category.of("race", "White, Asian-Pac-Islander, Amer-Indian-Eskimo, Other, Black"),
        Category.of("sex", "Female, Male"),
        Number("capital-gain", math.log1p(100_000), log=True),
        Number("capital-loss", math.log1p(100_000), log=True),
        Number("hours-per-week", 100.0),
        Category.of(
            "native-country",
            "United-States, Cambodia, England, Puerto-Rico, Canada, Germany, Outlying-US(Guam-USVI-etc), India, "
            "Japan, Greece, South, China, Cuba, Iran, Honduras, Philippines, Italy, Poland, Jamaica, Vietnam, "
            "Mexico, Portugal, Ireland, France, Dominican-Republic, Laos, Ecuador, Taiwan, Haiti, Columbia, "
            "Hungary, Guatemala, Nicaragua, Scotland, Thailand, Yugoslavia, El-Salvador, Trinadad&Tobago, Peru, "
            "Hong, Holand-Netherlands",
        ),
        Label("income", ("<=50K", ">50K")),
    )
)
"""UCI Adult. `encode` drops the full stop that follows each label in the test file."""

BANK = Table(
    delimiter=";",
    header=True,
    columns=(
        Number("age", 100.0),
        Category.of(
            "job",
            "admin., blue-collar, entrepreneur, housemaid, management, retired, self-employed, services, student, "
            "technician, unemployed, unknown",
        ),
        Category.of("marital", "divorced, married, single, unknown"),
        Category.of(
            "education",
            "basic.4y, basic.6y, basic.9y, high.school, illiterate, professional.course, university.degree, unknown",
        ),
        Category.of("default", _YES_NO),
        Category.of("housing", _YES_NO),
        Category.of("loan", _YES_NO),
        Category.of("contact", "cellular, telephone"),
        Category.of("month", "jan, feb, mar, apr, may, jun, jul, aug, sep, oct, nov, dec"),
        Category.of("day_of_week", "mon, tue, wed, thu, fri"),
        # The papers keep the duration, although UCI says that it is known only after the call.
        Number("duration", math.log1p(5_000), log=True),
        Number("campaign", math.log1p(100), log=True),
        Number("pdays", 999.0),  # 999 means "never contacted"
        Number("previous", 10.0),
        Category.of("poutcome", "failure, nonexistent, success"),
        Number("emp.var.rate", 5.0, low=-1.0),
        Number("cons.price.idx", 5.0, centre=93.0, low=-1.0),
        Number("cons.conf.idx", 50.0, low=-1.0),
        Number("euribor3m", 6.0),
        Number("nr.employed", 300.0, centre=5_100.0, low=-1.0),
        Label("y", ("no", "yes")),
    ),
)
"""UCI Bank Marketing with the social and economic columns: the 41 188 rows of bank-additional-full."""

WISCONSIN = Table(
    columns=(
        Ignored("Sample code number"),
        *(
            Number(name, 10.0)
            for name in (
                "Clump Thickness",
                "Uniformity of Cell Size",
                "Uniformity of Cell Shape",
                "Marginal Adhesion",
                "Single Epithelial Cell Size",
                "Bare Nuclei",
                "Bland Chromatin",
                "Normal Nucleoli",
                "Mitoses",
            )
        ),
        Label("Class", ("2", "4")),
    )
)
"""UCI Breast Cancer Wisconsin (original): nine grades from 1 to 10, and a label. 2 is benign, and 4 is malignant."""

KDDCUP = Table(
    columns=(
        Number("duration", math.log1p(100_000), log=True),
        Category.of("protocol_type", "tcp, udp, icmp"),
        Category.of(
            "service",
            "aol, auth, bgp, courier, csnet_ns, ctf, daytime, discard, domain, domain_u, echo, eco_i, ecr_i, efs, "
            "exec, finger, ftp, ftp_data, gopher, harvest, hostnames, http, http_2784, http_443, http_8001, imap4, "
            "IRC, iso_tsap, klogin, kshell, ldap, link, login, mtp, name, netbios_dgm, netbios_ns, netbios_ssn, "
            "netstat, nnsp, nntp, ntp_u, other, pm_dump, pop_2, pop_3, printer, private, red_i, remote_job, rje, "
            "shell, smtp, sql_net, ssh, sunrpc, supdup, systat, telnet, tftp_u, tim_i, time, urh_i, urp_i, uucp, "
            "uucp_path, vmnet, whois, X11, Z39_50",
        ),
        Category.of("flag", "OTH, REJ, RSTO, RSTOS0, RSTR, S0, S1, S2, S3, SF, SH"),
        *(Number(name, math.log1p(1e9), log=True) for name in ("src_bytes", "dst_bytes")),
        Number("land", 1.0),
        *(Number(name, 10.0) for name in ("wrong_fragment", "urgent")),
        Number("hot", 100.0),
        Number("num_failed_logins", 10.0),
        Number("logged_in", 1.0),
        Number("num_compromised", math.log1p(10_000), log=True),
        *(Number(name, 2.0) for name in ("root_shell", "su_attempted")),
        Number("num_root", math.log1p(10_000), log=True),
        Number("num_file_creations", 100.0),
        *(Number(name, 10.0) for name in ("num_shells", "num_access_files", "num_outbound_cmds")),
        *(Number(name, 1.0) for name in ("is_host_login", "is_guest_login")),
        *(Number(name, 512.0) for name in ("count", "srv_count")),
        *(
            Number(name, 1.0)
            for name in (
                "serror_rate",
                "srv_serror_rate",
                "rerror_rate",
                "srv_rerror_rate",
                "same_srv_rate",
                "diff_srv_rate",
                "srv_diff_host_rate",
            )
        ),
        *(Number(name, 256.0) for name in ("dst_host_count", "dst_host_srv_count")),
        *(
            Number(f"dst_host_{name}", 1.0)
            for name in (
                "same_srv_rate",
                "diff_srv_rate",
                "same_src_port_rate",
                "srv_diff_host_rate",
                "serror_rate",
                "srv_serror_rate",
                "rerror_rate",
                "srv_rerror_rate",
            )
        ),
        Label("connection", ("normal",), other=True),
    ),
)
"""KDD Cup 1999: 41 features of a connection (kddcup.names), and a label. 0 is normal, and 1 is any attack."""

CREDIT_CARD = Table(
    header=True,
    columns=(
        Number("Time", 172_800.0),
        *(Number(f"V{number}", 10.0, low=-1.0) for number in range(1, 29)),
        Number("Amount", math.log1p(30_000), log=True),
        Label("Class", ("0", "1")),
    ),
)
"""ULB credit card fraud: two days of payments, 28 principal components that the publishers computed, and a label."""


def _number(column: Number, text: str) -> float:
    if text in ("?", ""):
        return 0.0
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(column.name)
    scaled = ((math.log1p(max(value, 0.0)) if column.log else value) - column.centre) / column.scale
    return min(max(scaled, column.low), 1.0)


def _encode_row(columns: tuple[Column, ...], row: Sequence[str]) -> tuple[list[float], int]:
    features: list[float] = []
    label = -1
    for column, cell in zip(columns, row, strict=True):
        text = cell.strip()
        match column:
            case Number():
                features.append(_number(column, text))
            case Category(words=words):
                features.extend(float(text == word) for word in words)
            case Label(words=words, other=other):
                word = text.rstrip(".")
                label = len(words) if other and word not in words else words.index(word)
            case Ignored():
                pass
    return features, label


def encode(table: Table, text: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the features, float32 of shape (rows, table.width), and the labels, int64 of shape (rows,).

    Lines that are empty or start with ``|`` (Adult's test file has one) are skipped.

    Raises:
        DatasetError: a line does not fit the table. The message does not quote the record.
    """
    import numpy as np

    lines = (line for line in io.StringIO(text) if line.strip() and not line.startswith("|"))
    rows = csv.reader(lines, delimiter=table.delimiter, skipinitialspace=True)
    if table.header:
        found = next(rows, [])
        expected = [column.name for column in table.columns]
        if found != expected:
            raise DatasetError(
                "dataset-damaged", f"The header must name the columns {', '.join(expected)}. Download the file again."
            )
    features: list[list[float]] = []
    labels: list[int] = []
    for row in rows:
        try:
            values, label = _encode_row(table.columns, row)
        except ValueError:
            raise DatasetError(
                "dataset-damaged",
                f"A record does not fit the {len(table.columns)} columns of the table. Download the file again.",
            ) from None
        features.append(values)
        labels.append(label)
    return np.asarray(features, np.float32).reshape(-1, table.width), np.asarray(labels, np.int64)
