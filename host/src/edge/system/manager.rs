//! systemd by its bus: a connection for each question, so that a host at rest holds none.

use std::time::Duration;

use futures_util::StreamExt as _;
use zbus::Connection;
use zbus_systemd::systemd1::{ManagerProxy, ServiceProxy, UnitProxy};

use super::{JOB, Turn};
use crate::pure::unit::Unit;

/// How long the manager may take to answer a question.
const ANSWER: Duration = Duration::from_secs(25);
/// The unit as the manager has it; none where there is none.
///
/// # Errors
/// In words: the manager did not answer.
pub async fn unit(name: &str) -> Result<Option<Unit>, String> {
    within(ANSWER, async {
        let bus = Connection::system().await?;
        look(&bus, name).await
    })
    .await
}

/// Does something with a unit and waits for its end.
pub(super) async fn turn(name: &str, turn: Turn, bound: Duration) -> Result<(), String> {
    let done = within(bound, async {
        let bus = Connection::system().await?;
        let manager = ManagerProxy::new(&bus).await?;
        act(&manager, name, turn).await
    });
    match done.await? {
        None => Ok(()),
        Some(result) => {
            let how = match unit(name).await {
                Ok(Some(unit)) => format!("; it is {}", unit.words()),
                Ok(None) | Err(_) => String::new(),
            };
            Err(format!(
                "{} {name}: the job ended as `{result}`{how}",
                turn.word()
            ))
        }
    }
}

/// Has the manager read its files anew.
pub(super) async fn read_units() -> Result<(), String> {
    within(JOB, async {
        let bus = Connection::system().await?;
        ManagerProxy::new(&bus).await?.reload().await
    })
    .await
}

/// In words, and bounded.
async fn within<T>(bound: Duration, work: impl Future<Output = zbus::Result<T>>) -> Result<T, String> {
    match tokio::time::timeout(bound, work).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(zbus::Error::MethodError(name, said, _))) => Err(format!(
            "the service manager refused: {}",
            said.unwrap_or_else(|| name.to_string())
        )),
        Ok(Err(e)) => Err(format!("the service manager cannot be asked: {e}")),
        Err(_) => Err(format!(
            "the service manager did not answer within {} s",
            bound.as_secs()
        )),
    }
}

async fn look(bus: &Connection, name: &str) -> zbus::Result<Option<Unit>> {
    let manager = ManagerProxy::new(bus).await?;
    // To load a unit that there is none of is no error: its load state says so.
    let path = manager.load_unit(name.to_owned()).await?;
    let proxy = UnitProxy::builder(bus)
        .path(path.clone())
        .cache_properties(zbus::proxy::CacheProperties::No)
        .build()
        .await?;
    let load = proxy.load_state().await?;
    if load == "not-found" {
        return Ok(None);
    }
    let mut unit = Unit {
        active: proxy.active_state().await?,
        sub: proxy.sub_state().await?,
        boot: proxy.unit_file_state().await?,
        is_stale: proxy.need_daemon_reload().await?,
        ..Unit::default()
    };
    if load == "masked" && unit.boot.is_empty() {
        unit.boot = "masked".to_owned();
    }
    if name.ends_with(".service") {
        let service = ServiceProxy::builder(bus)
            .path(path)
            .cache_properties(zbus::proxy::CacheProperties::No)
            .build()
            .await?;
        unit.result = service.result().await?;
        unit.main_pid = service.main_pid().await?;
        unit.restarts = service.n_restarts().await?;
    }
    Ok(Some(unit))
}

/// Does it; the result of its job where that is another than `done`.
async fn act(manager: &ManagerProxy<'_>, name: &str, turn: Turn) -> zbus::Result<Option<String>> {
    let files = vec![name.to_owned()];
    match turn {
        Turn::Enable => drop(manager.enable_unit_files(files, false, false).await?),
        Turn::Disable => drop(manager.disable_unit_files(files, false).await?),
        Turn::Mask => drop(manager.mask_unit_files(files, false, false).await?),
        Turn::Unmask => drop(manager.unmask_unit_files(files, false).await?),
        Turn::Reset => {
            manager.reset_failed_unit(name.to_owned()).await?;
            return Ok(None);
        }
        Turn::Start | Turn::Stop | Turn::Restart | Turn::Reload => return job(manager, name, turn).await,
    }
    // What starts at boot was changed on the disk; the manager knows when it has read it.
    manager.reload().await?;
    Ok(None)
}

async fn job(manager: &ManagerProxy<'_>, name: &str, turn: Turn) -> zbus::Result<Option<String>> {
    // Before the job, or its end is missed; and without `Subscribe` nobody is told on a machine without a session.
    let mut removed = manager.receive_job_removed().await?;
    manager.subscribe().await?;
    let (unit, mode) = (name.to_owned(), "replace".to_owned());
    let job = match turn {
        Turn::Stop => manager.stop_unit(unit, mode).await?,
        Turn::Restart => manager.restart_unit(unit, mode).await?,
        Turn::Reload => manager.reload_or_try_restart_unit(unit, mode).await?,
        _ => manager.start_unit(unit, mode).await?,
    };
    while let Some(signal) = removed.next().await {
        let ended = signal.args()?;
        if ended.job == job {
            return Ok((ended.result != "done").then(|| ended.result.clone()));
        }
    }
    Err(zbus::Error::Failure(
        "the bus was closed before the job ended".to_owned(),
    ))
}
