"""An Airflow task that waits for a job: put this file beside your DAGs."""

from airflow.exceptions import AirflowFailException
from airflow.sensors.base import BaseSensorOperator

from spotline.client import Client

GOOD = ("completed", "completed_late")


class SpotlineJob(BaseSensorOperator):
    """Done when the job is; fails, without another try, where it did not complete."""

    template_fields = ("job_id",)

    def __init__(self, *, job_id, address="127.0.0.1:7070", **others):
        super().__init__(**{"mode": "reschedule", "poke_interval": 60, **others})
        self.job_id, self.address = job_id, address

    def poke(self, context):
        with Client(self.address) as spotline:
            state = spotline.get(self.job_id).state
        if state.over and state.value not in GOOD:
            raise AirflowFailException(f"{self.job_id} ended as {state.value}")
        return state.over


# In a DAG: SpotlineJob(task_id="trained", job_id="{{ ti.xcom_pull('submit') }}")
