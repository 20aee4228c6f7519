//! The memory that this process may use: that of the machine, or less if a control group says so.

use std::path::Path;

/// Where neither the machine nor a control group says how much there is.
const DEFAULT_MEMORY_BYTES: usize = 4 << 30;
const CONTROL_GROUPS: &str = "/sys/fs/cgroup";

/// Reads how many bytes this process may use.
pub(crate) fn process_memory_bytes() -> usize {
    memory_bytes(|path| std::fs::read_to_string(path).ok())
}

fn memory_bytes(read: impl Fn(&Path) -> Option<String>) -> usize {
    let machine = read(Path::new("/proc/meminfo"));
    let machine = machine.and_then(|text| machine_bytes(&text));
    let groups = read(Path::new("/proc/self/cgroup")).unwrap_or_default();
    let group = groups.lines().find_map(|line| line.strip_prefix("0::/"));
    // A group bounds those below it. In a container the root is often its own group.
    let groups = Path::new(group.unwrap_or_default()).ancestors();
    let limits = groups.filter_map(|group| {
        let file = Path::new(CONTROL_GROUPS).join(group).join("memory.max");
        read(&file)?.trim().parse().ok()
    });
    let least = machine.into_iter().chain(limits).min();
    least.unwrap_or(DEFAULT_MEMORY_BYTES)
}

/// `MemTotal` of `/proc/meminfo`, which counts in KiB.
fn machine_bytes(meminfo: &str) -> Option<usize> {
    let total = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: usize = total.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    // proves: FLV-bounds
    #[test]
    fn the_least_of_machine_and_control_groups_counts() {
        const MACHINE: (&str, &str) = (
            "/proc/meminfo",
            "MemTotal:        8388608 kB\nMemFree: 1 kB\n",
        );
        const GROUP: (&str, &str) = ("/proc/self/cgroup", "1:cpu:/x\n0::/a/b\n");
        let inner = "/sys/fs/cgroup/a/b/memory.max";
        let outer = "/sys/fs/cgroup/a/memory.max";
        let root = "/sys/fs/cgroup/memory.max";
        for (files, expected) in [
            (vec![], DEFAULT_MEMORY_BYTES),
            (vec![("/proc/meminfo", "MemTotal: many")], 4 << 30),
            (vec![MACHINE], 8 << 30),
            (vec![MACHINE, GROUP, (inner, "max\n")], 8 << 30),
            (vec![MACHINE, GROUP, (inner, "1000\n")], 1000),
            (vec![MACHINE, GROUP, (inner, "max"), (outer, "2000")], 2000),
            (vec![MACHINE, GROUP, (root, "3000\n")], 3000),
            (vec![MACHINE, (root, "99999999999999\n")], 8 << 30),
            (vec![(root, "3000\n")], 3000),
        ] {
            let read = |path: &Path| {
                let file = files.iter().find(|(name, _)| Path::new(name) == path);
                file.map(|(_, text)| (*text).to_owned())
            };
            assert_eq!(memory_bytes(read), expected, "{files:?}");
        }
        assert!(process_memory_bytes() > 0);
    }
}
