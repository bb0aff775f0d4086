"""Class-incremental methods: one file and one line each."""

from dsal.methods.acil import ACIL
from dsal.methods.air import AIR
from dsal.methods.contract import Method, Phase, State
from dsal.methods.ds_al import DSAL
from dsal.methods.ewc import EWC
from dsal.methods.features.arrays import ArrayMethod, keeps
from dsal.methods.features.method import FeatureMethod
from dsal.methods.fecam import FeCAM
from dsal.methods.fetril import FeTrIL, FeTrILFC
from dsal.methods.finetune import Finetune
from dsal.methods.gkeal import GKEAL
from dsal.methods.icarl import ICaRL
from dsal.methods.ivoro import IVoroD, IVoroN, IVoroND
from dsal.methods.joint import JointLogistic, JointRidge
from dsal.methods.joint_network import JointNetwork
from dsal.methods.lfl import LFL
from dsal.methods.lucir import LUCIR
from dsal.methods.lwf import LwF
from dsal.methods.ncm import NCM
from dsal.methods.ranpac import RanPAC
from dsal.methods.sgd_head import SGDHead
from dsal.methods.slda import SLDA
from dsal.registry import Registry

METHODS: Registry[type[Method]] = Registry("method", group="dsal.methods")
METHODS.register("ds-al")(DSAL)
METHODS.register("acil")(ACIL)
METHODS.register("gkeal")(GKEAL)
METHODS.register("fetril")(FeTrIL)
METHODS.register("fetril-fc")(FeTrILFC)
METHODS.register("ivoro-n")(IVoroN)
METHODS.register("ivoro-d")(IVoroD)
METHODS.register("ivoro-nd")(IVoroND)
METHODS.register("ncm")(NCM)
METHODS.register("slda")(SLDA)
METHODS.register("fecam")(FeCAM)
METHODS.register("ranpac")(RanPAC)
METHODS.register("air")(AIR)
METHODS.register("joint-ridge")(JointRidge)
METHODS.register("joint-logistic")(JointLogistic)
METHODS.register("sgd-head")(SGDHead)
METHODS.register("finetune")(Finetune)
METHODS.register("joint-network")(JointNetwork)
METHODS.register("lwf")(LwF)
METHODS.register("lfl")(LFL)
METHODS.register("ewc")(EWC)
METHODS.register("icarl")(ICaRL)
METHODS.register("lucir")(LUCIR)

__all__ = ["METHODS", "ArrayMethod", "FeatureMethod", "Method", "Phase", "State", "keeps"]
