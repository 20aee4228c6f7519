//! The format of backups: round trips, truncated, damaged and foreign files.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::ZlibEncoder;

use super::*;

fn header() -> BackupHeader {
    BackupHeader {
        revision: 9,
        engine: "embedded".into(),
        prefix: "/registry".into(),
        storage_format: 2,
        taken_at: "2026-01-01T00:00:00Z".into(),
    }
}

fn record(key: &str, mod_revision: u64, expires_at_ms: Option<i64>) -> BackupRecord {
    BackupRecord {
        key: key.into(),
        value: format!("{{\"name\":\"{key}\"}}").into(),
        mod_revision,
        expires_at_ms,
    }
}

fn records() -> Vec<BackupRecord> {
    vec![
        record("/registry/a", 9, None),
        record("/registry/b", 3, Some(-1)),
        record("/registry/c", 5, Some(i64::MAX)),
    ]
}

fn encode(header: &BackupHeader, records: &[BackupRecord]) -> Vec<u8> {
    let mut encoder = BackupEncoder::new(header).unwrap();
    let mut file = Vec::new();
    for record in records {
        encoder.record(record).unwrap();
        file.extend(encoder.take_encoded());
    }
    file.extend(encoder.finish().unwrap());
    file
}

fn decode(file: &[u8]) -> Result<(BackupHeader, Vec<BackupRecord>), BackupError> {
    let mut reader = BackupReader::new(file)?;
    let mut records = Vec::new();
    while let Some(record) = reader.next_record()? {
        records.push(record);
    }
    Ok((reader.header().clone(), records))
}

#[test]
fn a_backup_is_read_as_it_was_written() {
    for records in [Vec::new(), records()] {
        let file = encode(&header(), &records);
        assert_eq!(decode(&file).unwrap(), (header(), records));
    }
}

#[test]
fn every_truncated_backup_is_refused() {
    let file = encode(&header(), &records());
    for end in 0..file.len() {
        let error = decode(&file[..end]).expect_err("truncated");
        assert!(matches!(error, BackupError::Truncated), "{end}: {error}");
    }
}

#[test]
fn every_flipped_bit_is_found() {
    let file = encode(&header(), &records());
    for bit in 0..file.len() * 8 {
        let mut damaged = file.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert!(decode(&damaged).is_err(), "bit {bit}");
    }
}

#[test]
fn what_is_no_backup_of_this_format_is_refused() {
    let file = encode(&header(), &records());
    let content = &file[file.iter().position(|byte| *byte == b'\n').unwrap() + 1..];
    for (start, error) in [
        ("flotilla-backup 2\n", "it has format 2 of backups"),
        ("flotilla-backup 10\n", "it has format 10 of backups"),
        ("flotilla-backup 01\n", "it is not a backup of Flotilla"),
        ("flotilla-backup +1\n", "it is not a backup of Flotilla"),
        ("SQLite format 3\0", "it is not a backup of Flotilla"),
    ] {
        let other = [start.as_bytes(), content].concat();
        let text = decode(&other).unwrap_err().to_string();
        assert!(text.starts_with(error), "{start}: {text}");
    }
    let longer = [&file[..], b"x"].concat();
    let text = decode(&longer).unwrap_err().to_string();
    assert_eq!(text, "it is damaged: data follows its end");
}

#[test]
fn inconsistent_records_are_refused() {
    for (inconsistent, error) in [
        (
            vec![record("/b", 1, None), record("/a", 2, None)],
            "it is damaged: its keys are not in ascending order",
        ),
        (
            vec![record("/b", 1, None), record("/b", 2, None)],
            "it is damaged: its keys are not in ascending order",
        ),
        (
            vec![record("/b", 10, None)],
            "it is damaged: a key has a revision that the backup cannot have",
        ),
        (
            vec![record("/b", 0, None)],
            "it is damaged: a key has a revision that the backup cannot have",
        ),
    ] {
        let text = decode(&encode(&header(), &inconsistent))
            .unwrap_err()
            .to_string();
        assert_eq!(text, error);
    }
}

#[test]
fn a_length_beyond_the_limit_is_refused_before_it_is_allocated() {
    let mut file = b"flotilla-backup 1\n".to_vec();
    let mut compressor = ZlibEncoder::new(Vec::new(), Compression::fast());
    compressor.write_all(&u32::MAX.to_be_bytes()).unwrap();
    file.extend(compressor.finish().unwrap());
    let text = decode(&file).unwrap_err().to_string();
    assert_eq!(
        text,
        "it is damaged: a length of 4294967295 bytes exceeds 65536"
    );
}

#[test]
fn the_reason_of_the_server_is_reported() {
    let mut encoder = BackupEncoder::new(&header()).unwrap();
    encoder.record(&records()[0]).unwrap();
    let file = encoder.fail("no history").unwrap();
    let error = decode(&file).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the server could not complete it: no history"
    );
}
