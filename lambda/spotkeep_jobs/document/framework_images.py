"""AWS's own training images, by framework or algorithm and version, and the accounts that hold them. Data only.

`python -m tests.spotkeep_jobs.document.framework_image_table` writes them from the SageMaker SDK
(sagemaker.core.image_uris), and a test compares them. The days until which AWS patches them are written by hand (`make
check-dates`).
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from typing import Final, NamedTuple


class AwsImage(NamedTuple):
    """An image that AWS publishes in many regions.

    Attributes:
        registry: The key of its accounts in `ACCOUNTS`, which has the regions where it is served.
        path: Repository and tag, with `{processor}` in place of `cpu` or `gpu`.
    """

    registry: str
    path: str


def _images(table: str) -> Mapping[str, AwsImage]:
    rows = [row.split() for row in table.strip().splitlines()]
    return {name: AwsImage(registry, path) for name, registry, path in rows}


FRAMEWORK_IMAGES: Final = _images("""
pytorch-2.8.0      pytorch     pytorch-training:2.8.0-{processor}-py312
pytorch-2.9.0      pytorch     pytorch-training:2.9.0-{processor}-py312
pytorch-2.10.0     pytorch     pytorch-training:2.10.0-{processor}-py313
tensorflow-2.18.0  tensorflow  tensorflow-training:2.18.0-{processor}-py310
tensorflow-2.19.0  tensorflow  tensorflow-training:2.19.0-{processor}-py312
tensorflow-2.21.0  pytorch     tensorflow-training:2.21.0-{processor}-py312
huggingface-4.55.0 huggingface huggingface-pytorch-training:2.7.1-transformers4.55.0-gpu-py312-cu128-ubuntu22.04
huggingface-4.56.2 huggingface huggingface-pytorch-training:2.8.0-transformers4.56.2-gpu-py312-cu129-ubuntu22.04
huggingface-5.3.0  huggingface huggingface-pytorch-training:2.9.0-transformers5.3.0-gpu-py312-cu130-ubuntu22.04
xgboost-1.7-1      xgboost     sagemaker-xgboost:1.7-1
xgboost-3.0-5      xgboost     sagemaker-xgboost:3.0-5
xgboost-3.2-0      xgboost     sagemaker-xgboost:3.2-0
sklearn-1.2-1      xgboost     sagemaker-scikit-learn:1.2-1-cpu-py3
sklearn-1.4-2      xgboost     sagemaker-scikit-learn:1.4-2-cpu-py3
sklearn-1.9-0      xgboost     sagemaker-scikit-learn:1.9-0-cpu-py3
""")
"""By `<framework>-<version>`, of each framework the oldest first."""

PATCHED_UNTIL: Final[Mapping[str, date]] = {
    "pytorch-2.8.0": date(2026, 8, 6),
    "pytorch-2.9.0": date(2026, 10, 15),
    "pytorch-2.10.0": date(2027, 1, 21),
}
"""The last day on which AWS patches an image, by its name above, the oldest first.

The days of other images are not known here.

Source: https://docs.aws.amazon.com/deep-learning-containers/latest/devguide/support-policy.html (End of patch), read on
`PATCHED_UNTIL_READ`.
"""
PATCHED_UNTIL_READ: Final = "2026-11"

ALGORITHM_IMAGES: Final = _images("""
xgboost-1.7-1            xgboost                sagemaker-xgboost:1.7-1
xgboost-3.0-5            xgboost                sagemaker-xgboost:3.0-5
xgboost-3.2-0            xgboost                sagemaker-xgboost:3.2-0
blazingtext-1            blazingtext            blazingtext:1
factorization-machines-1 factorization-machines factorization-machines:1
forecasting-deepar-1     forecasting-deepar     forecasting-deepar:1
image-classification-1   blazingtext            image-classification:1
ipinsights-1             factorization-machines ipinsights:1
kmeans-1                 factorization-machines kmeans:1
knn-1                    factorization-machines knn:1
lda-1                    lda                    lda:1
linear-learner-1         factorization-machines linear-learner:1
ntm-1                    factorization-machines ntm:1
object-detection-1       blazingtext            object-detection:1
object2vec-1             factorization-machines object2vec:1
pca-1                    factorization-machines pca:1
randomcutforest-1        factorization-machines randomcutforest:1
semantic-segmentation-1  blazingtext            semantic-segmentation:1
seq2seq-1                blazingtext            seq2seq:1
""")
"""By `<algorithm>-<version>`, of each algorithm the oldest first."""

_ACCOUNTS: Final = """
region pytorch tensorflow huggingface xgboost blazingtext factorization-machines forecasting-deepar lda
af-south-1     626614931356 626614931356 626614931356 510948584623 455444449433 455444449433 455444449433 -
ap-east-1      871362719292 871362719292 871362719292 651117190479 286214385809 286214385809 286214385809 -
ap-east-2      975050140332 975050140332 -            -            -            -            -            -
ap-northeast-1 763104351884 763104351884 763104351884 354813040037 501404015308 351501993468 633353088612 258307448986
ap-northeast-2 763104351884 763104351884 763104351884 366743142698 306986355934 835164637446 204372634319 293181348795
ap-northeast-3 364406365360 364406365360 364406365360 867004704886 867004704886 867004704886 867004704886 -
ap-south-1     763104351884 763104351884 763104351884 720646828776 991648021394 991648021394 991648021394 991648021394
ap-south-2     772153158452 772153158452 -            628508329040 628508329040 628508329040 628508329040 -
ap-southeast-1 763104351884 763104351884 763104351884 121021644041 475088953585 475088953585 475088953585 475088953585
ap-southeast-2 763104351884 763104351884 763104351884 783357654285 544295431143 712309505854 514117268639 297031611018
ap-southeast-3 907027046896 907027046896 907027046896 951798379941 951798379941 951798379941 951798379941 -
ap-southeast-4 457447274322 457447274322 -            106583098589 106583098589 106583098589 106583098589 -
ap-southeast-5 550225433462 550225433462 -            -            -            -            -            -
ap-southeast-6 633930458069 633930458069 -            -            -            -            -            -
ap-southeast-7 590183813437 590183813437 -            -            -            -            -            -
ca-central-1   763104351884 763104351884 763104351884 341280168497 469771592824 469771592824 469771592824 469771592824
ca-west-1      204538143572 204538143572 204538143572 190319476487 190319476487 190319476487 190319476487 -
cn-north-1     727897471807 727897471807 727897471807 450853457545 390948362332 390948362332 390948362332 -
cn-northwest-1 727897471807 727897471807 727897471807 451049120500 387376663083 387376663083 387376663083 -
eu-central-1   763104351884 763104351884 763104351884 492215442770 813361260812 664544806723 495149712605 353608530281
eu-central-2   380420809688 380420809688 -            680994064768 680994064768 680994064768 680994064768 -
eu-north-1     763104351884 763104351884 763104351884 662702820516 669576153137 669576153137 669576153137 -
eu-south-1     692866216735 692866216735 692866216735 978288397137 257386234256 257386234256 257386234256 -
eu-south-2     503227376785 503227376785 -            104374241257 104374241257 104374241257 104374241257 -
eu-west-1      763104351884 763104351884 763104351884 141502667606 685385470294 438346466558 224300973850 999678624901
eu-west-2      763104351884 763104351884 763104351884 764974769150 644912444149 644912444149 644912444149 644912444149
eu-west-3      763104351884 763104351884 763104351884 659782779980 749696950732 749696950732 749696950732 -
il-central-1   780543022126 780543022126 780543022126 898809789911 898809789911 898809789911 898809789911 -
me-central-1   914824155844 914824155844 914824155844 272398656194 272398656194 272398656194 272398656194 -
me-south-1     217643126080 217643126080 217643126080 801668240914 249704162688 249704162688 249704162688 -
me-west-1      124382933778 -            -            -            -            -            -            -
mx-central-1   637423239942 637423239942 -            -            -            -            -            -
sa-east-1      763104351884 763104351884 763104351884 737474898029 855470959533 855470959533 855470959533 -
us-east-1      763104351884 763104351884 763104351884 683313688378 811284229777 382416733822 522234722520 766337827248
us-east-2      763104351884 763104351884 763104351884 257758044811 825641698319 404615174143 566113047672 999911452149
us-gov-east-1  446045086412 446045086412 446045086412 237065988967 237065988967 237065988967 237065988967 -
us-gov-west-1  442386744353 442386744353 442386744353 414596584902 226302683700 226302683700 226302683700 226302683700
us-west-1      763104351884 763104351884 763104351884 746614075791 632365934929 632365934929 632365934929 632365934929
us-west-2      763104351884 763104351884 763104351884 246618743249 433757028032 174872318107 156387875391 266724342769
"""
"""A row for each region, with the account of each registry there, or - where it is not served."""
_REGISTRIES, *_REGIONS = (row.split() for row in _ACCOUNTS.strip().splitlines())
ACCOUNTS: Final[Mapping[str, Mapping[str, str]]] = {
    registry: {region[0]: region[column] for region in _REGIONS if region[column] != "-"}
    for column, registry in enumerate(_REGISTRIES)
    if column
}
"""The account by registry and region."""
