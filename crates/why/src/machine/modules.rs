//! Memory channels without a module, by the tables of the firmware.

use super::Check;
use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

/// Maximum number of bytes read of the tables, which have a few KB.
const MOST: u64 = 1 << 20;

/// A place for a memory module.
#[derive(Debug, PartialEq, Eq)]
struct Slot {
    channel: String,
    /// Whether a module is there.
    is_filled: bool,
    /// Million transfers per second, as configured.
    speed: Option<u16>,
    /// Bits of data.
    width: u16,
}

pub(super) fn check(root: &Path) -> Check {
    const NAME: &str = "memory channels";
    let path = root.join("sys/firmware/dmi/tables/DMI");
    let mut table = Vec::new();
    let read = std::fs::File::open(&path).and_then(|file| file.take(MOST).read_to_end(&mut table));
    match read {
        Ok(_) => {}
        Err(e) if e.kind() == std::io::ErrorKind::PermissionDenied => {
            return Check::unknown(NAME, "only root may read the firmware's tables");
        }
        Err(_) => return Check::unknown(NAME, "the firmware has no tables of memory"),
    }
    let slots = slots(&table);
    let mut channels: BTreeMap<&str, bool> = BTreeMap::new();
    for slot in &slots {
        *channels.entry(&slot.channel).or_default() |= slot.is_filled;
    }
    let (all, filled) = (channels.len(), channels.values().filter(|&&filled| filled).count());
    if filled == 0 {
        return Check::unknown(NAME, "the firmware's tables name no memory modules");
    }
    let mut in_use = slots.iter().filter(|slot| slot.is_filled);
    let slowest = in_use.clone().filter_map(|slot| slot.speed).min();
    let width = in_use.next().map_or(64, |slot| slot.width);
    let seen = match slowest {
        Some(speed) => {
            let most = filled as f64 * f64::from(speed) * f64::from(width) / 8e3;
            format!("modules in {filled} of {all} channels, {speed} MT/s: at most {most:.0} GB/s")
        }
        None => format!("modules in {filled} of {all} channels"),
    };
    if filled == all {
        return Check::fine(NAME, seen);
    }
    let empty: Vec<&str> = channels.iter().filter(|(_, f)| !**f).map(|(&name, _)| name).collect();
    let mend = format!("put a module into each channel; empty: {}", empty.join(", "));
    Check::costs(NAME, 1.0 - filled as f64 / all as f64, seen, &[&mend])
}

/// The memory devices (type 17) of a table.
fn slots(mut table: &[u8]) -> Vec<Slot> {
    let mut slots = Vec::new();
    while let [kind, length, ..] = *table {
        let length = usize::from(length);
        if length < 4 || length > table.len() {
            break;
        }
        let (fields, rest) = table.split_at(length);
        // Strings end with a zero each, the last with two; without strings there are two zeros.
        let end = rest.windows(2).position(|pair| pair == [0, 0]).map_or(rest.len(), |at| at + 2);
        let strings: Vec<&[u8]> = rest[..end].split(|&byte| byte == 0).collect();
        if kind == 17 {
            slots.extend(slot(fields, &strings));
        }
        table = &rest[end..];
    }
    slots
}

fn slot(fields: &[u8], strings: &[&[u8]]) -> Option<Slot> {
    let word = |at: usize| {
        let bytes = fields.get(at..at + 2)?;
        Some(u16::from_le_bytes([bytes[0], bytes[1]]))
    };
    let text = |at: usize| -> Option<String> {
        let number = usize::from(*fields.get(at)?).checked_sub(1)?;
        Some(String::from_utf8_lossy(strings.get(number)?).trim().to_owned())
    };
    let speed = word(0x20).or_else(|| word(0x15)).filter(|&speed| speed != 0);
    Some(Slot {
        channel: channel(&text(0x10).unwrap_or_default(), &text(0x11).unwrap_or_default()),
        is_filled: word(0x0c)? != 0,
        speed,
        width: word(0x0a).filter(|&bits| bits != 0 && bits != u16::MAX).unwrap_or(64),
    })
}

/// The name of a slot's channel. Makers name slots `DIMM_A1`, `CPU1_DIMM_A2` or `A1`, with the
/// number of the slot at the end, or name the channel in the bank (`P0 CHANNEL A`).
fn channel(slot: &str, bank: &str) -> String {
    if bank.to_ascii_uppercase().contains("CHANNEL") {
        return bank.to_owned();
    }
    let name = slot.trim_end_matches(|c: char| c.is_ascii_digit());
    // A name of digits alone, or `DIMM 3`, numbers channels.
    match name.chars().last() {
        Some(last)
            if last.is_ascii_alphabetic() && name.len() < slot.len() && !name.ends_with("DIMM") =>
        {
            name.to_owned()
        }
        _ => slot.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(slot: &str, bank: &str, size: u16, speed: u16) -> Vec<u8> {
        let mut fields = vec![0u8; 0x22];
        fields[0] = 17;
        fields[1] = 0x22;
        fields[0x0a..0x0c].copy_from_slice(&64u16.to_le_bytes());
        fields[0x0c..0x0e].copy_from_slice(&size.to_le_bytes());
        fields[0x10] = 1;
        fields[0x11] = 2;
        fields[0x20..0x22].copy_from_slice(&speed.to_le_bytes());
        let strings = [slot.as_bytes(), &[0], bank.as_bytes(), &[0, 0]].concat();
        [fields, strings].concat()
    }

    fn seen(devices: &[Vec<u8>]) -> Check {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("sys/firmware/dmi/tables");
        std::fs::create_dir_all(&folder).unwrap();
        // Something else before, without strings, and the end.
        let table = [vec![4, 4, 0, 0, 0, 0], devices.concat(), vec![127, 4, 0, 0, 0, 0]].concat();
        std::fs::write(folder.join("DMI"), table).unwrap();
        check(root.path())
    }

    #[test]
    fn channels_without_a_module_are_counted() {
        let check = seen(&[
            device("DIMM_A1", "BANK 0", 16384, 4800),
            device("DIMM_A2", "BANK 0", 0, 0),
            device("DIMM_B1", "BANK 1", 0, 0),
            device("DIMM_B2", "BANK 1", 0, 0),
        ]);
        assert!((check.share() - 0.5).abs() < 1e-9, "{check:?}");
        assert_eq!(check.seen, "modules in 1 of 2 channels, 4800 MT/s: at most 38 GB/s");
        let all = seen(&[
            device("DIMM 0", "P0 CHANNEL A", 0x7fff, 6000),
            device("DIMM 0", "P0 CHANNEL B", 1, 6000),
        ]);
        assert_eq!(
            (all.share(), all.seen.as_str()),
            (0.0, "modules in 2 of 2 channels, 6000 MT/s: at most 96 GB/s")
        );
    }

    #[test]
    fn tables_that_are_cut_are_read_as_far_as_they_go() {
        let whole = device("A1", "", 1, 3200);
        for end in 0..whole.len() {
            slots(&whole[..end]);
        }
        assert_eq!(slots(&whole).len(), 1);
        assert_eq!(channel("CPU1_DIMM_A2", ""), "CPU1_DIMM_A");
        assert_eq!(channel("DIMM 3", "BANK 3"), "DIMM 3");
        assert_eq!(channel("DIMM3", ""), "DIMM3");
        assert_eq!(channel("A12", ""), "A");
    }
}
