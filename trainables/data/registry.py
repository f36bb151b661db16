"""Shipped data sets: public sizes, shapes, provenance, licence, and the checksum of every file.

- ``sha256``: checksum of a file. We compared that file with the official copy, or with two independent copies.
- ``md5``: checksum that the publishers of MNIST, Fashion-MNIST and CIFAR-10 state for their archives. We have not read
  these archives, so the arrays in them must also have the ``content_sha256``.
- ``content_sha256`` and ``records_sha256``: checksums of arrays, which detect a copy under another name.
"""

from __future__ import annotations

from trainables.data.requests import DatasetInfo, FileInfo
from trainables.data.tabular import ADULT, BANK, CREDIT_CARD, KDDCUP, WISCONSIN
from trainables.tasks import REGRESSION

__all__ = [
    "CONTEXT",
    "DATASETS",
    "KDDCUP_FRACTION",
    "LEAST_COUNT",
    "REGRESSIONS",
    "TEST_FRACTION",
    "VOCABULARY",
    "VOTED",
]

REGRESSIONS = {"regression_1d": (10.0,), "regression_2d": (10.0, 5.0)}
"""Synthetic regressions of the weight-decay paper (5.1 and 5.2): name → true weights."""

TEST_FRACTION = 0.2
"""Fraction of the records in the test set, for data sets without an official test set. A hash selects the records."""

KDDCUP_FRACTION = 70_000 / 494_021
"""Fraction of KDD Cup's rows that are used, about as many as papers use. A hash of the row's number selects them."""

VOTED = 9_000
"""Number of test images of MNIST on which the teachers voted: the first images."""

CONTEXT = 20
"""Number of words in an input of next-word prediction."""

LEAST_COUNT = 20
"""Least number of times that each word of the vocabulary occurs in the public Brown corpus."""

VOCABULARY = 5013
"""Number of words in the vocabulary. They are numbered from 1, and all other words have the number 0."""

_PUBLISHED_RANGES = (
    "the published range of each column, which is treated as public although it was computed from these records"
)

_MNIST = "https://ossci-datasets.s3.amazonaws.com/mnist/"
_FASHION = "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/"
_UCI = "https://archive.ics.uci.edu/ml/machine-learning-databases/"
_IDX = (
    "train-images-idx3-ubyte.gz",
    "train-labels-idx1-ubyte.gz",
    "t10k-images-idx3-ubyte.gz",
    "t10k-labels-idx1-ubyte.gz",
)


def _idx(folder: str, address: str, *sums: str) -> tuple[FileInfo, ...]:
    # MNIST and Fashion-MNIST publish different files under the same names, so each has a folder.
    return tuple(
        FileInfo(name=f"{folder}/{name}", md5=md5, url=address + name) for name, md5 in zip(_IDX, sums, strict=True)
    )


def _info(*forms: tuple[FileInfo, ...], **known: object) -> DatasetInfo:
    official = next((form for form in forms if all(file.url for file in form)), ())
    known.setdefault("budget_owner", known["name"])
    return DatasetInfo(forms=forms, files=official, **known)  # type: ignore[arg-type]


_CIFAR_ARCHIVE = FileInfo(
    name="cifar-10-python.tar.gz",
    md5="c58f30108f718f92721af3b95e74349a",
    url="https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
)

_ALL = (
    _info(
        name="digits",
        public_train_size=1401,
        test_size=396,
        input_shape=(1, 8, 8),
        classes=10,
        content_sha256="b5a0882b978b7d50cd8ba3a1b0d48220e0649522381aa1518afa2dc16b0c9824",
        records_sha256="e536bf499d6570ed53909cef569f685b263f1cd16c40a84844055c68dacf8404",
        provenance="UCI Optical Recognition of Handwritten Digits, the test part, from scikit-learn; a fifth of the "
        "records is our public test split",
        licence="CC BY 4.0",
    ),
    _info(
        name="breast_cancer",
        public_train_size=450,
        test_size=119,
        input_shape=(30,),
        classes=2,
        content_sha256="b4e2ae787c837e62ede92592e24179d09a258c5bb2b3c88e04cf17c3de4e5f4f",
        records_sha256="5cb06f445ff9e77777cc4148d26f6724e56857ad53492c10902ca79c3d636fc3",
        provenance="UCI Breast Cancer Wisconsin (diagnostic), from scikit-learn; a fifth of the records is our public "
        "test split",
        scaling=_PUBLISHED_RANGES,
        licence="CC BY 4.0",
    ),
    _info(
        name="iris",
        public_train_size=116,
        test_size=34,
        input_shape=(4,),
        classes=3,
        content_sha256="380c81fa335df9483ec044b3b4e541126db1a882af5310dda4c1cc60c7e9bc44",
        records_sha256="570e4cf342d808cd2d56c23023500d944e9d95b4d29b2eb4a8fce1b8f0e536f2",
        provenance="UCI Iris (Fisher 1936), from scikit-learn; a fifth of the records is our public test split",
        scaling=_PUBLISHED_RANGES,
        licence="CC BY 4.0",
    ),
    _info(
        (FileInfo("mnist.npz", "06af5dfe73b70e3bc1c36439982b18a8d76803db9b544f6fdf838a37fbb01b64"),),
        _idx(
            "mnist",
            _MNIST,
            "f68b3c2dcbeaaa9fbdd348bbdeb94873",
            "d53e105ee54ea40749a09fcbcd1e9432",
            "9fb629c4189551a2d022fa330f9573f3",
            "ec29112dd5afa0611ce80d1b7f02629c",
        ),
        name="mnist",
        public_train_size=60_000,
        test_size=10_000,
        input_shape=(1, 28, 28),
        classes=10,
        content_sha256="f51158809a4c6bda64963151f813c10dbbd64c89b8f0b0db0f99a129515e42ed",
        records_sha256="6db74735d3d95a35c70be27727449fda40a10eda75111ddd4c14a10cc0a4edb5",
        provenance="MNIST (LeCun, Cortes, Burges), official training and test sets",
        licence="none stated",
    ),
    _info(
        (
            FileInfo("mnist.npz", "06af5dfe73b70e3bc1c36439982b18a8d76803db9b544f6fdf838a37fbb01b64"),
            FileInfo("pate_votes.npz", "7551aa2c7994404e2d2f79fcdf244cc119704b171a5ef24ff9832b09671b3abe"),
        ),
        name="mnist_votes",
        public_train_size=VOTED,
        test_size=1_000,
        input_shape=(1, 28, 28),
        classes=10,
        content_sha256="7d48accdf3c68901f6bf15c92cb82eaeb873b8e062d02bdc4653cbe0869224cd",
        records_sha256="b8e27335c16885d5708f0465927d436153cdc0193c1a99e65a096d0ddc421333",
        budget_owner="mnist",
        teachers=250,
        provenance="MNIST's test images, as public inputs, and the votes of 250 teachers on the first 9 000 images; "
        "each teacher was trained on a part of MNIST's training records (Papernot et al. 2018), so the votes share "
        "MNIST's budget",
        licence="none stated",
    ),
    _info(
        (FileInfo("fashion_mnist.npz", "5b6d2c4c694a91887af8ab7d039c04f80af3c29378d731c93a538d2e831aa469"),),
        _idx(
            "fashion_mnist",
            _FASHION,
            "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
            "25c81989df183df01b3e8a0aad5dffbe",
            "bef4ecab320f06d8554ea6380940ec79",
            "bb300cfdad3c16e7a12a480ee83cd310",
        ),
        name="fashion_mnist",
        public_train_size=60_000,
        test_size=10_000,
        input_shape=(1, 28, 28),
        classes=10,
        content_sha256="415d8345e0dd136999ed76ba0d96fc7b5f708e603d2e3a74f640d4826afb16d8",
        records_sha256="72ce61a3c143713c30196b83486b0bf727a93346c408921b3608006d61f3a275",
        provenance="Fashion-MNIST (Zalando Research 2017), official training and test sets",
        licence="MIT",
    ),
    _info(
        (FileInfo("cifar10.webp.npz", "9cd4b178f65165f9314081925418748cad0c237888833c2a3c2da5521d6bb6ac"),),
        (_CIFAR_ARCHIVE,),
        name="cifar10",
        public_train_size=50_000,
        test_size=10_000,
        input_shape=(3, 32, 32),
        classes=10,
        content_sha256="36a51cb571d96fb1598944e7aa15655979bfaa60f3153b64f0a5f4e20b1cf083",
        records_sha256="cefd7db05c6c29991e6ac2c39fe286040619799bcdc17e271b26773417a90d92",
        provenance="CIFAR-10 (Krizhevsky 2009), official training and test sets in the official order",
        licence="none stated",
    ),
    _info(
        (FileInfo("cifar10_10k2k.webp.npz", "d808df5ea4bd4e5767c5e9dc9dbe1765fcec8c12a1fb5b10f7cd54b01ce6bd9b"),),
        name="cifar10_10k2k",
        public_train_size=10_000,
        test_size=2_000,
        input_shape=(3, 32, 32),
        classes=10,
        content_sha256="3ae38f3b0d83c025c960e1246c59d1536b9d51236720dfc61952803096853501",
        records_sha256="a953d2d4af36e3a31edc1a7aba22400b12903f05f6d8782520d43369b8d36337",
        budget_owner="cifar10",
        provenance="a stratified subset of CIFAR-10 for quick runs, with 10 000 training and 2 000 test records; its "
        "records share CIFAR-10's budget",
        licence="none stated",
    ),
    _info(
        (
            FileInfo(
                "cifar100_10k2k_mobilenetv2_feats_u8sqrt.npz",
                "fc0fe0021d13683b862ca37af04a53df02ac291a83101d22eebb02ed1acc8588",
            ),
        ),
        name="cifar100_transfer",
        public_train_size=10_000,
        test_size=2_000,
        input_shape=(1280,),
        classes=100,
        content_sha256="c22709e7abae424b7ab7304b6d57db1c1331e7edbc1ce8ced940663d88ce3a16",
        records_sha256="55737a2240d209361406dd37c5b9f425f8aaf02aeafd5f660e756914f486803a",
        provenance="a stratified subset of CIFAR-100 (Krizhevsky 2009) with 10 000 training and 2 000 test records, "
        "given as the 1 280 features that a MobileNetV2 trained on ImageNet computes at 224 pixels; features are "
        "divided by 6, their public bound",
        licence="none stated",
    ),
    _info(
        (
            FileInfo("adult.data.xz", "03c5722d4eaeaa2962f81284344def3c5150dadc6ddf841fcbb57f233371445c"),
            FileInfo("adult.test.xz", "45248f451a46bace9a234ece542aeadb66ea52e3c078f136d4b2c069cb38b1cd"),
        ),
        (
            FileInfo(
                "adult.data",
                "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d",
                url=f"{_UCI}adult/adult.data",
            ),
            FileInfo(
                "adult.test",
                "a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05",
                url=f"{_UCI}adult/adult.test",
            ),
        ),
        name="adult",
        public_train_size=32_561,
        test_size=16_281,
        input_shape=(ADULT.width,),
        classes=2,
        content_sha256="3b03edc29d21b1779401434b8e9d0f8330179732fa542118d26fe426d0144d0d",
        records_sha256="0df8f962e691f7764ed6565b4161e41122107dcde1e3b298dc23c3bf5c164713",
        provenance="UCI Adult (Becker, Kohavi 1996), official training and test sets, including the rows with "
        "missing values",
        licence="CC BY 4.0",
    ),
    _info(
        (FileInfo("bank-additional-full.csv.xz", "382e6af4933a7a167fe4264c1182234c02b063d712c5ad46313d6db0ab9d3ac1"),),
        (
            FileInfo(
                "bank-additional-full.csv",
                "74adfc578bf77a7ff4bb1ba4a9f8709d9e3c6907342959c2c8416847e0afb4d8",
                url=f"{_UCI}00222/bank-additional.zip",
            ),
        ),
        name="bank",
        public_train_size=32_885,
        test_size=8_303,
        input_shape=(BANK.width,),
        classes=2,
        content_sha256="2f781799bcf4bd1d15c0841b36f6e501fcc99b4182a2e28c86bef560feed3a30",
        records_sha256="84b9ce3f45e4ffec3b20240094fc85235d25ea12437a0bc8a1e8bdf30779d8b8",
        provenance="UCI Bank Marketing, the 41 188 rows of bank-additional-full (Moro, Cortez, Rita 2014); a fifth of "
        "the records is our public test split",
        licence="CC BY 4.0",
    ),
    _info(
        (
            FileInfo(
                "breast-cancer-wisconsin.data",
                "402c585309c399237740f635ef9919dc512cca12cbeb20de5e563a4593f22b64",
                url=f"{_UCI}breast-cancer-wisconsin/breast-cancer-wisconsin.data",
            ),
        ),
        name="breast_cancer_wisconsin",
        public_train_size=570,
        test_size=129,
        input_shape=(WISCONSIN.width,),
        classes=2,
        content_sha256="dfbd6d6638d4ac3afa55b5e4c620c32d13ea8732e020b168f482a41bcf570a3b",
        records_sha256="4f81bef16eba4edf98393add9fca246cb80238ad30cedd316f8ff3f0520553f4",
        provenance="UCI Breast Cancer Wisconsin (original, Wolberg 1992), 699 rows, including 16 with a missing "
        "value; a fifth of the records is our public test split",
        licence="CC BY 4.0",
    ),
    _info(
        (
            FileInfo(
                "kddcup.data_10_percent.xz",
                "e661b70349d6b4595aebd2b8b38300e7d4d10ce95d6426c4bd52411431250a5b",
            ),
        ),
        name="kddcup99",
        public_train_size=56_217,
        test_size=14_290,
        input_shape=(KDDCUP.width,),
        classes=2,
        content_sha256="d60172ea6a0a39983807d451e6a3525fae1f1ef60610490be7f385229a47922f",
        records_sha256="ecc2025a611ea7312a819736e3bf005c5b8a3a4ae80df9907e00363e9cb322da",
        provenance="KDD Cup 1999 (UCI KDD Archive), about 70 000 rows of the official 10 % sample, selected by a hash "
        "of the row number; the label is normal or attack; a fifth of the records is our public test split",
        licence="CC BY 4.0",
    ),
    _info(
        (
            FileInfo(
                "creditcard_984_seed0.csv.xz",
                "0927d4ece8cc50e29586a72de1c7452bdd6d4d1c75b9922f92bc9340d268172b",
            ),
        ),
        name="credit_card",
        public_train_size=790,
        test_size=194,
        input_shape=(CREDIT_CARD.width,),
        classes=2,
        content_sha256="44c0907d4744a14c19a0b2b900cec4ad6aa8b5f4fcfb7135c2a4145771d11e75",
        records_sha256="abc3daf39d10fd3622391c0521e38679a115f56d7822c09b8c40edf92b9fd490",
        provenance="ULB credit card fraud (Dal Pozzolo et al. 2015), the 492 frauds and 492 random normal payments; a "
        "fifth of the records is our public test split",
        scaling="public constants; 28 of the columns are principal components that the publishers computed from all "
        "payments, and are treated as public",
        licence="DbCL 1.0",
    ),
    _info(
        (
            FileInfo("state_union.zip", "366c1dc82b2abf896f42b2ec50ba802a0141a29f75d29ca48a7a243ce5bfbe8d"),
            FileInfo("brown_tokens.npz", "639a85f2288c9a4e93e6fc70f2be14bdc0bc763d7778b25288f9cddec363a09a"),
        ),
        name="state_union",
        public_train_size=14_691,
        test_size=806,
        input_shape=(CONTEXT,),
        classes=VOCABULARY + 1,
        content_sha256="bdec3cecf226c520fe05b3743632c3266d30c8e1646666f205e104f0f759247f",
        records_sha256="41e49df3f3a7f547f3462d151edee21940a30831a203c6b3ea6dce3ddcd74b95",
        users=10,
        record="a window of 21 consecutive words. Windows do not overlap, but a sentence may extend over several "
        "windows, so a claim for each record protects a window, not a sentence, a speech or a speaker",
        provenance="65 State of the Union addresses (1945 to 2006, NLTK), cut into windows of 21 words; a model "
        "predicts the last word from the 20 before it; windows do not overlap; the users are the 11 speakers, and "
        "the addresses of one speaker are our public test split; the public vocabulary has the words that occur at "
        "least 20 times in the Brown corpus, in lower case",
        licence="addresses: public domain; Brown corpus (vocabulary): non-commercial, according to NLTK's index",
    ),
    *(
        _info(
            name=name,
            public_train_size=800,
            test_size=200,
            input_shape=(len(weights),),
            classes=1,
            task=REGRESSION,
            content_sha256=content,
            records_sha256=records,
            provenance="drawn from a public seed, like the synthetic regression of the weight-decay paper (Guo 2024, "
            "sections 5.1 and 5.2): y = X·w + noise with X ~ N(0, I); nothing in it is private",
            licence="none needed",
        )
        for (name, weights), content, records in zip(
            REGRESSIONS.items(),
            (
                "ac1ba0c3775d48a0c0c44a2aa1ddc83271fe08cc195ae873f226aee89bd56f68",
                "1a98b264534405565ed2b2d83e03f99625260d3d50a68afa6361e66fcbae9450",
            ),
            (
                "08b11aee98821a058a17384ef624ec638c35b686a3878647bb4bd76836732f55",
                "c9141b66d22572f6a2dca6e9cdbe0db2a22b60a02cb5418ff84e5039d6c76286",
            ),
            strict=True,
        )
    ),
)

DATASETS: dict[str, DatasetInfo] = {info.name: info for info in _ALL}
"""Every shipped data set by name."""
