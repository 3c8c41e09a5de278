"""What every prediction of a job rests on, before earlier runs correct it."""

from meshfit.funnel.space.curves import measured_curves
from meshfit.funnel.space.estimating import estimating_profile
from meshfit.job.spec import Job
from meshfit.predict.basis import Basis
from meshfit.predict.calibration import formula_only


def uncorrected_basis(job: Job) -> Basis:
    """The job, the profile it is predicted with and the collectives that were measured on its cluster.
    With what earlier runs taught it is ``calibrating.basis_of``.

    Raises:
        InputError: the curves file is broken, or says that the fabric is.
    """
    profile = estimating_profile(job.profile)
    return Basis(
        model=job.model,
        training=job.training,
        topology=job.topology,
        profile=profile,
        calibration=formula_only(job.topology, profile.name),
        curves=measured_curves(job.curves, job.topology),
    )
