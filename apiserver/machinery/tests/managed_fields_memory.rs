//! Measures how much memory the managers of many objects of one client take. This test is alone
//! in its process, because the allocator counts all of it.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use machinery::Object;
use peak_alloc::PeakAlloc;

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

const OBJECTS: usize = 10_000;
/// The limit for the managers of one object.
const MAX_BYTES_PER_OBJECT: usize = 100;

fn managers(at: usize) -> String {
    let time = format!(
        "2026-01-02T{:02}:{:02}:{:02}Z",
        at / 3600,
        at / 60 % 60,
        at % 60
    );
    let fields = r#"{"f:data":{".":{},"f:first":{},"f:second":{},"f:third":{}},"f:metadata":{"f:annotations":{".":{},"f:kubectl.kubernetes.io/last-applied-configuration":{}},"f:labels":{".":{},"f:app":{}}}}"#;
    format!(
        r#"[{{"apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{fields},"manager":"kubectl-client-side-apply","operation":"Update","time":"{time}"}}]"#
    )
}

fn objects(with_managers: bool) -> (Vec<Object>, usize) {
    let before = ALLOCATOR.current_usage();
    let objects = (0..OBJECTS).map(|at| {
        let managers = match with_managers {
            true => format!(r#""managedFields":{},"#, managers(at)),
            false => String::new(),
        };
        let text = format!(
            r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{{managers}"name":"c{at}","namespace":"n","uid":"u{at}"}},"data":{{"first":"a","second":"b","third":"c"}}}}"#
        );
        Object::from_stored(text.as_bytes(), 7).unwrap()
    });
    let objects: Vec<Object> = objects.collect();
    let used = ALLOCATOR.current_usage() - before;
    (objects, used)
}

#[test]
fn managers_of_one_client_are_kept_once() {
    let (without, plain) = objects(false);
    drop(without);
    let (with, managed) = objects(true);
    let text = managers(0).len();
    let per_object = (managed - plain) / OBJECTS;
    println!("{per_object} bytes per object for a text of {text}");
    assert!(text > 3 * MAX_BYTES_PER_OBJECT);
    assert!(per_object <= MAX_BYTES_PER_OBJECT, "{per_object} bytes");
    let last = with[OBJECTS - 1].managed_fields_json().unwrap();
    assert_eq!(last, managers(OBJECTS - 1));
}
