//! What modules share: data that lives as long as a request or fetch, and work that takes time.

use copal_net as net;
use copal_vcl as vcl;
use std::any::Any;
use vcl::exec::{Finish, Wait, Work};
use vcl::host::{Fault, Host, Result, Sub};
use vcl::value::Value;
use vcl::vmod::Call;

/// The task's own `T`, made by its default when first asked for. `key` is a static of the module: its address tells the
/// modules apart.
///
/// # Errors
/// A fault of ours: the key is used for two types.
pub(crate) fn data<'task, T: Any + Default>(
    call: &'task mut Call<'_>,
    key: &'static u8,
) -> Result<&'task mut T> {
    let key = std::ptr::from_ref(key) as usize;
    call.host
        .task_data(key, &mut || Box::new(T::default()))
        .downcast_mut()
        .ok_or_else(|| Fault("a module's data for the task is of another module".into()))
}

/// Whether the call is in `vcl_init` or `vcl_fini`, which cannot wait and hold nobody up.
pub(crate) fn is_loading(call: &Call<'_>) -> bool {
    matches!(call.subroutine, Sub::Init | Sub::Fini)
}

/// Has the caller wait for `future` and take its value as the call's.
pub(crate) fn wait_for(
    call: &mut Call<'_>,
    future: impl Future<Output = Result<Value>> + 'static,
) -> Result<Value> {
    call.wait = Some(Wait::Work(Work::new(future)));
    Ok(Value::Void)
}

/// Does `job`, which may block, on a helper thread, and at once where nobody can wait.
pub(crate) fn blocking(
    call: &mut Call<'_>,
    job: impl FnOnce() -> Result<Value> + Send + 'static,
) -> Result<Value> {
    blocking_with(call, job, |_, value| value)
}

/// The same, and `finish` makes the value of what the job gave, with the request at hand.
pub(crate) fn blocking_with<T: Send + 'static>(
    call: &mut Call<'_>,
    job: impl FnOnce() -> T + Send + 'static,
    finish: impl FnOnce(&mut dyn Host, T) -> Result<Value> + 'static,
) -> Result<Value> {
    if is_loading(call) {
        return finish(call.host, job());
    }
    call.wait = Some(Wait::Work(Work::with(async move {
        let done = net::blocking::run(job).await;
        let finish: Finish = Box::new(move |host| match done {
            Ok(done) => finish(host, done),
            Err(why) => Err(Fault(why.to_string())),
        });
        finish
    })));
    Ok(Value::Void)
}
