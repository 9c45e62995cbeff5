//! Guarantees of the crate beyond signatures: threads may share it, errors can be sent.

use underpass::drive::blocking::Driver;
use underpass::drive::{RelayBuffers, SourceAndSink};
use underpass::{
    Account, Endpoint, Error, FileRange, Kernel, KernelFacts, Outbox, Piece, Plan, Policy,
    SharedFile, Sink, Source, Transfer,
};

const fn shared<T: Send + Sync + 'static>() {}
const fn sent<T: Send>(_: &T) {}

const _: () = {
    shared::<Account>();
    shared::<Endpoint>();
    shared::<Error>();
    shared::<FileRange>();
    shared::<Kernel>();
    shared::<KernelFacts>();
    shared::<Outbox>();
    shared::<Piece>();
    shared::<Plan>();
    shared::<Policy>();
    shared::<RelayBuffers>();
    shared::<SharedFile>();
    shared::<Transfer>();
    shared::<SourceAndSink<'static>>();
    shared::<Sink<std::fs::File>>();
    shared::<Source<std::fs::File>>();
};

#[test]
fn errors_travel_as_others_do() {
    let kernel = Kernel::unprobed();
    let (folder, file) = (std::fs::File::open("/"), tempfile::tempfile());
    let (folder, file) = (folder.expect("a folder"), file.expect("a file"));
    let error: Box<dyn std::error::Error + Send + Sync> =
        match underpass::copy_file(&kernel, &folder, &file) {
            Err(error) => Box::new(error),
            Ok(account) => panic!("a folder has no content: {account}"),
        };
    let error = *error.downcast::<Error>().expect("the same");
    assert_eq!(error.moved(), 0);
    let errno = error.errno.expect("the kernel said why");
    let io = std::io::Error::from(error);
    assert_eq!(io.kind(), std::io::Error::from(errno).kind(), "{io}");
}

#[test]
fn a_driver_can_be_shown() {
    let kernel = Kernel::unprobed();
    assert!(format!("{:?}", Driver::new(&kernel)).starts_with("Driver"));
}

#[cfg(feature = "tokio")]
#[test]
fn turns_may_run_on_any_thread_of_a_runtime() {
    use tokio::net::UnixStream;
    use underpass::drive::tokio::{FileReceiver, FileSender, Sender, relay};

    const _: () = {
        shared::<Sender>();
        shared::<FileSender>();
        shared::<FileReceiver>();
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build();
    runtime.expect("a runtime").block_on(async {
        let (one, other) = UnixStream::pair().expect("a pair");
        let (kernel, policy, file) = (Kernel::unprobed(), Policy::default(), tempfile::tempfile());
        let file = file.expect("a file");
        let (mut outbox, mut sender) = (Outbox::new(), Sender::new());
        sent(&sender.turn(&mut outbox, &one, &kernel, &policy, 1));
        let mut sender = FileSender::new(&file, 0, 1).expect("a sender");
        sent(&sender.run(&one, &kernel));
        let mut receiver = FileReceiver::new(&file, 0, 1).expect("a receiver");
        sent(&receiver.run(&one, &kernel));
        sent(&relay(&kernel, &one, &other));
    });
}
