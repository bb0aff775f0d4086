"""Class-incremental methods, one file and one registry line each."""

from dsal.methods.aanets import LUCIRAANets, PODNetAANets
from dsal.methods.acil import ACIL
from dsal.methods.air import AIR
from dsal.methods.bic import BiC
from dsal.methods.contract import Method, Phase, State
from dsal.methods.ds_al import DSAL
from dsal.methods.eeil import EEIL
from dsal.methods.ewc import EWC
from dsal.methods.features.arrays import ArrayMethod, keeps
from dsal.methods.features.method import FeatureMethod
from dsal.methods.fecam import FeCAM
from dsal.methods.fetril import FeTrIL, FeTrILFC
from dsal.methods.finetune import Finetune
from dsal.methods.foster import FOSTER
from dsal.methods.gkeal import GKEAL
from dsal.methods.icarl import ICaRL
from dsal.methods.il2a import IL2A
from dsal.methods.ivoro import IVoroD, IVoroN, IVoroND
from dsal.methods.joint import JointLogistic, JointRidge
from dsal.methods.joint_network import JointNetwork
from dsal.methods.lfl import LFL
from dsal.methods.lucir import LUCIR
from dsal.methods.lwf import LwF
from dsal.methods.mnemonics import Mnemonics
from dsal.methods.ncm import NCM
from dsal.methods.online import OnlineLUCIR
from dsal.methods.pass_ import PASS
from dsal.methods.podnet import PODNet
from dsal.methods.ranpac import RanPAC
from dsal.methods.rewc import REWC
from dsal.methods.rmm import ICaRLRMM, PODNetAANetsRMM
from dsal.methods.sgd_head import SGDHead
from dsal.methods.slda import SLDA
from dsal.methods.ssre import SSRE
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
METHODS.register("r-ewc")(REWC)
METHODS.register("pass")(PASS)
METHODS.register("il2a")(IL2A)
METHODS.register("ssre")(SSRE)
METHODS.register("icarl")(ICaRL)
METHODS.register("eeil")(EEIL)
METHODS.register("bic")(BiC)
METHODS.register("lucir")(LUCIR)
METHODS.register("podnet")(PODNet)
METHODS.register("foster")(FOSTER)
METHODS.register("mnemonics")(Mnemonics)
METHODS.register("lucir-aanets")(LUCIRAANets)
METHODS.register("podnet-aanets")(PODNetAANets)
METHODS.register("online-lucir")(OnlineLUCIR)
METHODS.register("rmm")(PODNetAANetsRMM)
METHODS.register("icarl-rmm")(ICaRLRMM)

__all__ = ["METHODS", "ArrayMethod", "FeatureMethod", "Method", "Phase", "State", "keeps"]
