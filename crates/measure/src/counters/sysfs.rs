//! Memory controllers' events, from `/sys/bus/event_source/devices`.
//!
//! A device's `type` is the number that the kernel knows it by, `cpumask` lists a CPU for each
//! package, `format/x` says which bits of `config` the term `x` goes to, and `events/y` is a list of
//! terms, with `events/y.scale` and `events/y.unit` beside it.

use std::fs;
use std::path::Path;

use topology::CpuList;

use super::ControllerEvent;
use super::perf::Attr;

const DEVICES: &str = "sys/bus/event_source/devices";

/// A kind of device, and what it calls reads and writes.
struct Known {
    prefix: &'static str,
    events: &'static [Name],
}

struct Name {
    event: &'static str,
    writes: bool,
    /// The encoding and the bytes per count, where the kernel does not list the event.
    unlisted: Option<(&'static str, f64)>,
}

const fn listed(event: &'static str, writes: bool) -> Name {
    Name { event, writes, unlisted: None }
}

/// Of a family that counts the same twice only the first that is there is taken.
const KNOWN: [&[Known]; 2] = [
    &[
        Known {
            prefix: "uncore_imc_free_running",
            events: &[
                listed("read", false),
                listed("write", true),
                listed("data_read", false),
                listed("data_write", true),
            ],
        },
        Known {
            prefix: "uncore_imc",
            events: &[
                listed("cas_count_read", false),
                listed("cas_count_write", true),
                listed("data_reads", false),
                listed("data_writes", true),
            ],
        },
    ],
    &[Known {
        // Each command moves a line. The kernel describes the terms only; the numbers are those of
        // its `tools/perf/pmu-events/arch/x86/amdzen4/memory-controller.json`.
        prefix: "amd_umc",
        events: &[
            Name {
                event: "umc_cas_cmd.rd",
                writes: false,
                unlisted: Some(("event=0x0a,rdwrmask=0x1", 64.0)),
            },
            Name {
                event: "umc_cas_cmd.wr",
                writes: true,
                unlisted: Some(("event=0x0a,rdwrmask=0x2", 64.0)),
            },
        ],
    }],
];

/// The events of all memory controllers that are known and described in full. A device without one
/// of the two directions is left out: half of the traffic would pass for all of it.
pub(super) fn controllers(root: &Path) -> Vec<ControllerEvent> {
    let dir = root.join(DEVICES);
    let entries = fs::read_dir(&dir).into_iter().flatten().flatten();
    let mut devices: Vec<String> =
        entries.filter_map(|e| e.file_name().into_string().ok()).collect();
    devices.sort();
    let family = |family: &[Known]| {
        let kind = |known: &Known| -> Vec<ControllerEvent> {
            let ours = devices.iter().filter(|name| is_instance(name, known.prefix));
            let events = |name: &String| device(&dir.join(name), name, known).unwrap_or_default();
            ours.flat_map(events).collect()
        };
        family.iter().map(kind).find(|events| !events.is_empty()).unwrap_or_default()
    };
    KNOWN.iter().flat_map(|known| family(known)).collect()
}

/// `uncore_imc`, `uncore_imc_3`; not `uncore_imc_free_running_0`.
fn is_instance(name: &str, prefix: &str) -> bool {
    let rest = name.strip_prefix(prefix);
    rest.is_some_and(|rest| {
        let number = rest.strip_prefix('_').unwrap_or(rest);
        rest.is_empty() || !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit())
    })
}

fn device(dir: &Path, device: &str, known: &Known) -> Option<Vec<ControllerEvent>> {
    let kind = text(dir, "type")?.parse().ok()?;
    let cpus: CpuList = text(dir, "cpumask")?.parse().ok()?;
    let event = |name: &Name| {
        let (terms, bytes) = match (text(dir, &format!("events/{}", name.event)), name.unlisted) {
            (Some(terms), _) => (terms, unit(dir, name.event)?),
            (None, Some((terms, bytes))) => (terms.to_owned(), bytes),
            (None, None) => return None,
        };
        let attr =
            Attr { kind, config: encode(&terms, |term| text(dir, &format!("format/{term}")))? };
        let (name, writes) = (format!("{device}/{}", name.event), name.writes);
        Some(ControllerEvent { name, attr, cpus: cpus.clone(), writes, bytes })
    };
    let events: Vec<ControllerEvent> = known.events.iter().filter_map(event).collect();
    let both = events.iter().any(|e| e.writes) && events.iter().any(|e| !e.writes);
    both.then_some(events)
}

/// Bytes per count.
fn unit(dir: &Path, event: &str) -> Option<f64> {
    let scale: f64 = text(dir, &format!("events/{event}.scale"))?.parse().ok()?;
    match &*text(dir, &format!("events/{event}.unit"))? {
        "MiB" => Some(scale * f64::from(1 << 20)),
        "Bytes" => Some(scale),
        _ => None,
    }
}

/// The `config` words of a list of terms such as `event=0x04,umask=0x03`.
fn encode(terms: &str, format: impl Fn(&str) -> Option<String>) -> Option<[u64; 2]> {
    let mut words = [0_u64; 2];
    for term in terms.split(',') {
        let (name, value) = term.trim().split_once('=').unwrap_or((term.trim(), "1"));
        let value = number(value)?;
        match name {
            "config" => words[0] |= value,
            "config1" => words[1] |= value,
            _ if name.is_empty() || name.contains(['/', '.']) => return None,
            _ => spread(&format(name)?, value, &mut words)?,
        }
    }
    Some(words)
}

/// Puts a value's bits, lowest first, where a format such as `config:0-7,21` wants them. `None` if
/// they do not fit.
fn spread(format: &str, mut value: u64, words: &mut [u64; 2]) -> Option<()> {
    let (word, ranges) = format.split_once(':')?;
    let word = match word.trim() {
        "config" => &mut words[0],
        "config1" => &mut words[1],
        _ => return None,
    };
    for range in ranges.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u32, u32) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        if first > last || last > 63 {
            return None;
        }
        for bit in first..=last {
            *word |= (value & 1) << bit;
            value >>= 1;
        }
    }
    (value == 0).then_some(())
}

fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

fn text(dir: &Path, file: &str) -> Option<String> {
    fs::read_to_string(dir.join(file)).ok().map(|text| text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    /// A tree of devices that goes away with the value.
    struct FakeDevices(PathBuf);

    impl FakeDevices {
        fn new(name: &str, files: &[(&str, &str)]) -> Self {
            let root = std::env::temp_dir().join(format!("arclight-{name}-{}", std::process::id()));
            for (path, text) in files {
                let path = root.join(DEVICES).join(path);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, format!("{text}\n")).unwrap();
            }
            Self(root)
        }

        fn names(&self) -> Vec<String> {
            controllers(&self.0).into_iter().map(|e| e.name).collect()
        }
    }

    impl Drop for FakeDevices {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    const IMC: [(&str, &str); 10] = [
        ("uncore_imc_1/type", "22"),
        ("uncore_imc_1/cpumask", "0,32"),
        ("uncore_imc_1/format/event", "config:0-7"),
        ("uncore_imc_1/format/umask", "config:8-15"),
        ("uncore_imc_1/events/cas_count_read", "event=0x05,umask=0xcf"),
        ("uncore_imc_1/events/cas_count_read.scale", "6.103515625e-5"),
        ("uncore_imc_1/events/cas_count_read.unit", "MiB"),
        ("uncore_imc_1/events/cas_count_write", "event=0x05,umask=0xf0"),
        ("uncore_imc_1/events/cas_count_write.scale", "6.103515625e-5"),
        ("uncore_imc_1/events/cas_count_write.unit", "MiB"),
    ];

    #[test]
    fn intel_controllers_are_encoded_as_sysfs_says() {
        let tree = FakeDevices::new("imc", &IMC);
        let found = controllers(&tree.0);
        let [read, write] = &found[..] else { panic!("{found:?}") };
        assert_eq!(read.attr, Attr { kind: 22, config: [0xcf05, 0] });
        assert_eq!((read.cpus.to_string(), read.writes, read.bytes), ("0,32".into(), false, 64.0));
        assert_eq!(write.attr, Attr { kind: 22, config: [0xf005, 0] });
        assert_eq!((&*write.name, write.writes), ("uncore_imc_1/cas_count_write", true));
    }

    #[test]
    fn free_running_counters_go_before_those_that_count_the_same() {
        let free = "uncore_imc_free_running_0";
        let mut files: Vec<(String, &str)> =
            IMC.iter().map(|&(path, text)| (path.to_owned(), text)).collect();
        for (path, text) in [
            ("type", "30"),
            ("cpumask", "0"),
            ("format/event", "config:0-7"),
            ("format/umask", "config:8-15"),
        ] {
            files.push((format!("{free}/{path}"), text));
        }
        for (event, terms) in
            [("read", "event=0xff,umask=0x20"), ("write", "event=0xff,umask=0x30")]
        {
            files.push((format!("{free}/events/{event}"), terms));
            files.push((format!("{free}/events/{event}.scale"), "6.103515625e-5"));
            files.push((format!("{free}/events/{event}.unit"), "MiB"));
        }
        let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (&**path, *text)).collect();
        let tree = FakeDevices::new("free", &files);
        let names = ["uncore_imc_free_running_0/read", "uncore_imc_free_running_0/write"];
        assert_eq!(tree.names(), names);
        assert_eq!(controllers(&tree.0)[1].attr.config[0], 0x30ff);
        // Without writes it would tell half: the others are taken.
        fs::remove_file(tree.0.join(DEVICES).join(free).join("events/write")).unwrap();
        assert_eq!(tree.names(), ["uncore_imc_1/cas_count_read", "uncore_imc_1/cas_count_write"]);
    }

    #[test]
    fn amd_controllers_need_only_their_terms() {
        let tree = FakeDevices::new(
            "umc",
            &[
                ("amd_umc_0/type", "17"),
                ("amd_umc_0/cpumask", "0"),
                ("amd_umc_0/format/event", "config:0-7"),
                ("amd_umc_0/format/rdwrmask", "config:8-9"),
                // Neither of these is a memory controller that is known.
                ("amd_df/type", "16"),
                ("amd_umc_hash/type", "18"),
            ],
        );
        let found = controllers(&tree.0);
        let configs: Vec<_> = found.iter().map(|e| (e.attr.config[0], e.writes, e.bytes)).collect();
        assert_eq!(configs, [(0x10a, false, 64.0), (0x20a, true, 64.0)]);
    }

    #[test]
    fn what_is_broken_is_left_out() {
        for (path, text) in [
            ("uncore_imc_1/type", "x"),
            ("uncore_imc_1/cpumask", ""),
            ("uncore_imc_1/format/umask", "config:8-9"),
            ("uncore_imc_1/format/umask", "config7:8-15"),
            ("uncore_imc_1/events/cas_count_read", "event=0x05,../umask=1"),
            ("uncore_imc_1/events/cas_count_read.unit", "parsecs"),
            ("uncore_imc_1/events/cas_count_read.scale", ""),
        ] {
            let files: Vec<(&str, &str)> = IMC.iter().copied().chain([(path, text)]).collect();
            let tree = FakeDevices::new("broken", &files);
            assert_eq!(tree.names(), [""; 0], "{path}: {text}");
        }
        assert!(controllers(Path::new("/nonexistent")).is_empty());
    }

    #[test]
    fn terms_go_to_the_bits_of_their_format() {
        let format = |term: &str| match term {
            "event" => Some("config:0-7,32".to_owned()),
            "inv" => Some("config:23".to_owned()),
            "thresh" => Some("config1:4-7".to_owned()),
            _ => None,
        };
        assert_eq!(encode("event=0x1ff,inv", format), Some([1 << 32 | 1 << 23 | 0xff, 0]));
        assert_eq!(encode("thresh=15, config=0x8000", format), Some([0x8000, 0xf0]));
        for bad in ["thresh=16", "nothing=1", "event=x", "", "event=1,,inv", "inv=2"] {
            assert_eq!(encode(bad, format), None, "{bad}");
        }
    }
}
