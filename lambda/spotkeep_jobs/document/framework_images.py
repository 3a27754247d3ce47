"""AWS's own training images, by framework or algorithm and version, and whose accounts they are in. Data only.

Written by `python -m tests.spotkeep_jobs.document.framework_image_table` from the SageMaker SDK
(sagemaker.core.image_uris); a test compares them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, kw_only=True)
class AwsImage:
    """An image that AWS publishes in many regions.

    Attributes:
        path: repository and tag; `{processor}` stands for `cpu` or `gpu`.
        registry: the key of its accounts in `ACCOUNTS`.
        not_in: regions of that registry in which this version is not served.
    """

    path: str
    registry: str
    not_in: tuple[str, ...] = ()


FRAMEWORK_IMAGES: Final[Mapping[str, AwsImage]] = {
    "pytorch-2.8.0": AwsImage(
        path="pytorch-training:2.8.0-{processor}-py312",
        registry="pytorch",
    ),
    "pytorch-2.9.0": AwsImage(
        path="pytorch-training:2.9.0-{processor}-py312",
        registry="pytorch",
    ),
    "pytorch-2.10.0": AwsImage(
        path="pytorch-training:2.10.0-{processor}-py313",
        registry="pytorch",
    ),
    "tensorflow-2.18.0": AwsImage(
        path="tensorflow-training:2.18.0-{processor}-py310",
        registry="pytorch",
        not_in=("me-west-1",),
    ),
    "tensorflow-2.19.0": AwsImage(
        path="tensorflow-training:2.19.0-{processor}-py312",
        registry="pytorch",
        not_in=("me-west-1",),
    ),
    "tensorflow-2.21.0": AwsImage(
        path="tensorflow-training:2.21.0-{processor}-py312",
        registry="pytorch",
    ),
    "huggingface-4.55.0": AwsImage(
        path="huggingface-pytorch-training:2.7.1-transformers4.55.0-gpu-py312-cu128-ubuntu22.04",
        registry="pytorch",
        not_in=(
            "ap-east-2",
            "ap-south-2",
            "ap-southeast-4",
            "ap-southeast-5",
            "ap-southeast-6",
            "ap-southeast-7",
            "eu-central-2",
            "eu-south-2",
            "me-west-1",
            "mx-central-1",
        ),
    ),
    "huggingface-4.56.2": AwsImage(
        path="huggingface-pytorch-training:2.8.0-transformers4.56.2-gpu-py312-cu129-ubuntu22.04",
        registry="pytorch",
        not_in=(
            "ap-east-2",
            "ap-south-2",
            "ap-southeast-4",
            "ap-southeast-5",
            "ap-southeast-6",
            "ap-southeast-7",
            "eu-central-2",
            "eu-south-2",
            "me-west-1",
            "mx-central-1",
        ),
    ),
    "huggingface-5.3.0": AwsImage(
        path="huggingface-pytorch-training:2.9.0-transformers5.3.0-gpu-py312-cu130-ubuntu22.04",
        registry="pytorch",
        not_in=(
            "ap-east-2",
            "ap-south-2",
            "ap-southeast-4",
            "ap-southeast-5",
            "ap-southeast-6",
            "ap-southeast-7",
            "eu-central-2",
            "eu-south-2",
            "me-west-1",
            "mx-central-1",
        ),
    ),
    "xgboost-1.7-1": AwsImage(
        path="sagemaker-xgboost:1.7-1",
        registry="xgboost",
    ),
    "xgboost-3.0-5": AwsImage(
        path="sagemaker-xgboost:3.0-5",
        registry="xgboost",
    ),
    "xgboost-3.2-0": AwsImage(
        path="sagemaker-xgboost:3.2-0",
        registry="xgboost",
    ),
    "sklearn-1.2-1": AwsImage(
        path="sagemaker-scikit-learn:1.2-1-cpu-py3",
        registry="xgboost",
    ),
    "sklearn-1.4-2": AwsImage(
        path="sagemaker-scikit-learn:1.4-2-cpu-py3",
        registry="xgboost",
    ),
    "sklearn-1.9-0": AwsImage(
        path="sagemaker-scikit-learn:1.9-0-cpu-py3",
        registry="xgboost",
    ),
}
"""By `<framework>-<version>`, of each framework the oldest first."""

ALGORITHM_IMAGES: Final[Mapping[str, AwsImage]] = {
    "xgboost-1.7-1": AwsImage(
        path="sagemaker-xgboost:1.7-1",
        registry="xgboost",
    ),
    "xgboost-3.0-5": AwsImage(
        path="sagemaker-xgboost:3.0-5",
        registry="xgboost",
    ),
    "xgboost-3.2-0": AwsImage(
        path="sagemaker-xgboost:3.2-0",
        registry="xgboost",
    ),
    "blazingtext-1": AwsImage(
        path="blazingtext:1",
        registry="blazingtext",
    ),
    "factorization-machines-1": AwsImage(
        path="factorization-machines:1",
        registry="factorization-machines",
    ),
    "forecasting-deepar-1": AwsImage(
        path="forecasting-deepar:1",
        registry="forecasting-deepar",
    ),
    "image-classification-1": AwsImage(
        path="image-classification:1",
        registry="blazingtext",
    ),
    "ipinsights-1": AwsImage(
        path="ipinsights:1",
        registry="factorization-machines",
    ),
    "kmeans-1": AwsImage(
        path="kmeans:1",
        registry="factorization-machines",
    ),
    "knn-1": AwsImage(
        path="knn:1",
        registry="factorization-machines",
    ),
    "lda-1": AwsImage(
        path="lda:1",
        registry="lda",
    ),
    "linear-learner-1": AwsImage(
        path="linear-learner:1",
        registry="factorization-machines",
    ),
    "ntm-1": AwsImage(
        path="ntm:1",
        registry="factorization-machines",
    ),
    "object-detection-1": AwsImage(
        path="object-detection:1",
        registry="blazingtext",
    ),
    "object2vec-1": AwsImage(
        path="object2vec:1",
        registry="factorization-machines",
    ),
    "pca-1": AwsImage(
        path="pca:1",
        registry="factorization-machines",
    ),
    "randomcutforest-1": AwsImage(
        path="randomcutforest:1",
        registry="factorization-machines",
    ),
    "semantic-segmentation-1": AwsImage(
        path="semantic-segmentation:1",
        registry="blazingtext",
    ),
    "seq2seq-1": AwsImage(
        path="seq2seq:1",
        registry="blazingtext",
    ),
}
"""By `<algorithm>-<version>`, of each algorithm the oldest first."""

ACCOUNTS: Final[Mapping[str, Mapping[str, str]]] = {
    "pytorch": {
        "af-south-1": "626614931356",
        "ap-east-1": "871362719292",
        "ap-east-2": "975050140332",
        "ap-northeast-1": "763104351884",
        "ap-northeast-2": "763104351884",
        "ap-northeast-3": "364406365360",
        "ap-south-1": "763104351884",
        "ap-south-2": "772153158452",
        "ap-southeast-1": "763104351884",
        "ap-southeast-2": "763104351884",
        "ap-southeast-3": "907027046896",
        "ap-southeast-4": "457447274322",
        "ap-southeast-5": "550225433462",
        "ap-southeast-6": "633930458069",
        "ap-southeast-7": "590183813437",
        "ca-central-1": "763104351884",
        "ca-west-1": "204538143572",
        "cn-north-1": "727897471807",
        "cn-northwest-1": "727897471807",
        "eu-central-1": "763104351884",
        "eu-central-2": "380420809688",
        "eu-north-1": "763104351884",
        "eu-south-1": "692866216735",
        "eu-south-2": "503227376785",
        "eu-west-1": "763104351884",
        "eu-west-2": "763104351884",
        "eu-west-3": "763104351884",
        "il-central-1": "780543022126",
        "me-central-1": "914824155844",
        "me-south-1": "217643126080",
        "me-west-1": "124382933778",
        "mx-central-1": "637423239942",
        "sa-east-1": "763104351884",
        "us-east-1": "763104351884",
        "us-east-2": "763104351884",
        "us-gov-east-1": "446045086412",
        "us-gov-west-1": "442386744353",
        "us-west-1": "763104351884",
        "us-west-2": "763104351884",
    },
    "xgboost": {
        "af-south-1": "510948584623",
        "ap-east-1": "651117190479",
        "ap-northeast-1": "354813040037",
        "ap-northeast-2": "366743142698",
        "ap-northeast-3": "867004704886",
        "ap-south-1": "720646828776",
        "ap-south-2": "628508329040",
        "ap-southeast-1": "121021644041",
        "ap-southeast-2": "783357654285",
        "ap-southeast-3": "951798379941",
        "ap-southeast-4": "106583098589",
        "ca-central-1": "341280168497",
        "ca-west-1": "190319476487",
        "cn-north-1": "450853457545",
        "cn-northwest-1": "451049120500",
        "eu-central-1": "492215442770",
        "eu-central-2": "680994064768",
        "eu-north-1": "662702820516",
        "eu-south-1": "978288397137",
        "eu-south-2": "104374241257",
        "eu-west-1": "141502667606",
        "eu-west-2": "764974769150",
        "eu-west-3": "659782779980",
        "il-central-1": "898809789911",
        "me-central-1": "272398656194",
        "me-south-1": "801668240914",
        "sa-east-1": "737474898029",
        "us-east-1": "683313688378",
        "us-east-2": "257758044811",
        "us-gov-east-1": "237065988967",
        "us-gov-west-1": "414596584902",
        "us-west-1": "746614075791",
        "us-west-2": "246618743249",
    },
    "blazingtext": {
        "af-south-1": "455444449433",
        "ap-east-1": "286214385809",
        "ap-northeast-1": "501404015308",
        "ap-northeast-2": "306986355934",
        "ap-northeast-3": "867004704886",
        "ap-south-1": "991648021394",
        "ap-south-2": "628508329040",
        "ap-southeast-1": "475088953585",
        "ap-southeast-2": "544295431143",
        "ap-southeast-3": "951798379941",
        "ap-southeast-4": "106583098589",
        "ca-central-1": "469771592824",
        "ca-west-1": "190319476487",
        "cn-north-1": "390948362332",
        "cn-northwest-1": "387376663083",
        "eu-central-1": "813361260812",
        "eu-central-2": "680994064768",
        "eu-north-1": "669576153137",
        "eu-south-1": "257386234256",
        "eu-south-2": "104374241257",
        "eu-west-1": "685385470294",
        "eu-west-2": "644912444149",
        "eu-west-3": "749696950732",
        "il-central-1": "898809789911",
        "me-central-1": "272398656194",
        "me-south-1": "249704162688",
        "sa-east-1": "855470959533",
        "us-east-1": "811284229777",
        "us-east-2": "825641698319",
        "us-gov-east-1": "237065988967",
        "us-gov-west-1": "226302683700",
        "us-west-1": "632365934929",
        "us-west-2": "433757028032",
    },
    "factorization-machines": {
        "af-south-1": "455444449433",
        "ap-east-1": "286214385809",
        "ap-northeast-1": "351501993468",
        "ap-northeast-2": "835164637446",
        "ap-northeast-3": "867004704886",
        "ap-south-1": "991648021394",
        "ap-south-2": "628508329040",
        "ap-southeast-1": "475088953585",
        "ap-southeast-2": "712309505854",
        "ap-southeast-3": "951798379941",
        "ap-southeast-4": "106583098589",
        "ca-central-1": "469771592824",
        "ca-west-1": "190319476487",
        "cn-north-1": "390948362332",
        "cn-northwest-1": "387376663083",
        "eu-central-1": "664544806723",
        "eu-central-2": "680994064768",
        "eu-north-1": "669576153137",
        "eu-south-1": "257386234256",
        "eu-south-2": "104374241257",
        "eu-west-1": "438346466558",
        "eu-west-2": "644912444149",
        "eu-west-3": "749696950732",
        "il-central-1": "898809789911",
        "me-central-1": "272398656194",
        "me-south-1": "249704162688",
        "sa-east-1": "855470959533",
        "us-east-1": "382416733822",
        "us-east-2": "404615174143",
        "us-gov-east-1": "237065988967",
        "us-gov-west-1": "226302683700",
        "us-west-1": "632365934929",
        "us-west-2": "174872318107",
    },
    "forecasting-deepar": {
        "af-south-1": "455444449433",
        "ap-east-1": "286214385809",
        "ap-northeast-1": "633353088612",
        "ap-northeast-2": "204372634319",
        "ap-northeast-3": "867004704886",
        "ap-south-1": "991648021394",
        "ap-south-2": "628508329040",
        "ap-southeast-1": "475088953585",
        "ap-southeast-2": "514117268639",
        "ap-southeast-3": "951798379941",
        "ap-southeast-4": "106583098589",
        "ca-central-1": "469771592824",
        "ca-west-1": "190319476487",
        "cn-north-1": "390948362332",
        "cn-northwest-1": "387376663083",
        "eu-central-1": "495149712605",
        "eu-central-2": "680994064768",
        "eu-north-1": "669576153137",
        "eu-south-1": "257386234256",
        "eu-south-2": "104374241257",
        "eu-west-1": "224300973850",
        "eu-west-2": "644912444149",
        "eu-west-3": "749696950732",
        "il-central-1": "898809789911",
        "me-central-1": "272398656194",
        "me-south-1": "249704162688",
        "sa-east-1": "855470959533",
        "us-east-1": "522234722520",
        "us-east-2": "566113047672",
        "us-gov-east-1": "237065988967",
        "us-gov-west-1": "226302683700",
        "us-west-1": "632365934929",
        "us-west-2": "156387875391",
    },
    "lda": {
        "ap-northeast-1": "258307448986",
        "ap-northeast-2": "293181348795",
        "ap-south-1": "991648021394",
        "ap-southeast-1": "475088953585",
        "ap-southeast-2": "297031611018",
        "ca-central-1": "469771592824",
        "eu-central-1": "353608530281",
        "eu-west-1": "999678624901",
        "eu-west-2": "644912444149",
        "us-east-1": "766337827248",
        "us-east-2": "999911452149",
        "us-gov-west-1": "226302683700",
        "us-west-1": "632365934929",
        "us-west-2": "266724342769",
    },
}
"""The account by registry and region."""
