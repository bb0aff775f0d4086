"""Class-incremental methods, one file and one registry line each."""

from dsal.base.registry import Registry
from dsal.methods.closed_form.acil import ACIL
from dsal.methods.closed_form.air import AIR
from dsal.methods.closed_form.ds_al import DSAL
from dsal.methods.closed_form.fecam import FeCAM
from dsal.methods.closed_form.fetril import FeTrIL, FeTrILFC
from dsal.methods.closed_form.gkeal import GKEAL
from dsal.methods.closed_form.ivoro import IVoroD, IVoroN, IVoroND
from dsal.methods.closed_form.joint import JointLogistic, JointRidge
from dsal.methods.closed_form.kit.array_method import ArrayMethod, keeps
from dsal.methods.closed_form.kit.feature_method import FeatureMethod
from dsal.methods.closed_form.ncm import NCM
from dsal.methods.closed_form.ranpac import RanPAC
from dsal.methods.closed_form.sgd_head import SGDHead
from dsal.methods.closed_form.slda import SLDA
from dsal.methods.contract import Method, Phase, State
from dsal.methods.network.aanets import LUCIRAANets, PODNetAANets
from dsal.methods.network.bic import BiC
from dsal.methods.network.eeil import EEIL
from dsal.methods.network.ewc import EWC
from dsal.methods.network.finetune import Finetune
from dsal.methods.network.foster import FOSTER
from dsal.methods.network.icarl import ICaRL
from dsal.methods.network.il2a import IL2A
from dsal.methods.network.joint_network import JointNetwork
from dsal.methods.network.lfl import LFL
from dsal.methods.network.lucir import LUCIR
from dsal.methods.network.lwf import LwF
from dsal.methods.network.mnemonics import Mnemonics
from dsal.methods.network.online import OnlineLUCIR
from dsal.methods.network.pass_ import PASS
from dsal.methods.network.podnet import PODNet
from dsal.methods.network.rewc import REWC
from dsal.methods.network.rmm import ICaRLRMM, PODNetAANetsRMM
from dsal.methods.network.ssre import SSRE

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
