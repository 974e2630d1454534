//! Parameters that the kernel keeps per NAPI instance as well as for the device: since Linux 6.13 an instance may
//! differ from its device.
//!
//! The text format is one value if all have the same, or `2, by instance 0,2` (the device's value, then each instance's
//! by id). Writing the device's value first sets all instances.

use super::device_netlink::{napis, set_napis};
use super::parameter::Parameter;
use super::system::Trouble;

/// Sets a parameter of every instance of an interface in the calling thread's namespace, but not of the device; returns
/// the number of instances.
///
/// # Errors
/// The kernel does not keep this parameter per instance, or refuses the value.
pub fn set_all(ifindex: u32, parameter: Parameter, value: u64) -> Result<usize, Trouble> {
    let napis: Vec<_> = napis(ifindex, parameter)?.into_iter().map(|(id, _)| (id, value)).collect();
    set_napis(&napis, parameter)?;
    Ok(napis.len())
}

/// Separates the device's value from those of its instances.
pub(crate) const BY_INSTANCE: &str = ", by instance ";

/// Formats the present values; `None` if neither the device nor an instance has one.
pub(crate) fn text(device: Option<&str>, instances: &[u64]) -> Option<String> {
    let each = instances.iter().map(u64::to_string).collect::<Vec<_>>();
    let all_are = |value: &str| each.iter().all(|instance| instance == value);
    match (device, each.first()) {
        (None, None) => None,
        (None, Some(first)) if all_are(first) => Some(first.clone()),
        (None, Some(_)) => Some(each.join(",")),
        (Some(device), _) if all_are(device) => Some(device.to_owned()),
        (Some(device), _) => Some(format!("{device}{BY_INSTANCE}{}", each.join(","))),
    }
}

/// Parses the device's value and those of `count` instances; `None` if the text has a different number.
pub(crate) fn values(text: &str, count: usize) -> Option<(&str, Vec<u64>)> {
    let (device, each) = text.split_once(BY_INSTANCE).unwrap_or((text, text));
    let each: Vec<u64> = each.split(',').map(str::parse).collect::<Result<_, _>>().ok()?;
    match each.as_slice() {
        [all] => Some((device, vec![*all; count])),
        _ if each.len() == count => Some((device, each)),
        _ => None,
    }
}

/// Whether `now` is between `one` and `other`: the device and each instance have the value of either. An interrupted
/// write leaves such a state, because the kernel changes one instance after another.
pub(crate) fn is_between(now: &str, one: &str, other: &str) -> bool {
    let parts = |text: &str| -> Vec<String> {
        let (device, each) = text.split_once(BY_INSTANCE).unwrap_or((text, text));
        // A device without a value of its own is written as its instances, so the first of them appears twice.
        let device = device.split(',').next().unwrap_or_default();
        [device].into_iter().chain(each.split(',')).map(str::to_owned).collect()
    };
    let (now, one, other) = (parts(now), parts(one), parts(other));
    let count = now.len().max(one.len()).max(other.len());
    // Two parts mean one value for all.
    let at = |parts: &[String], place: usize| match parts {
        [device, all] => Some(if place == 0 { device.clone() } else { all.clone() }),
        parts => parts.get(place).cloned(),
    };
    (0..count).all(|place| {
        let now = at(&now, place);
        now.is_some() && (now == at(&one, place) || now == at(&other, place))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_that_was_cut_short_is_between_what_was_and_what_was_to_be() {
        assert!(is_between("0,0,0,5", "0", "5"));
        assert!(is_between("0,5,5,5", "0", "5,5,5,5"));
        assert!(is_between("0, by instance 5,0", "0", "5"));
        assert!(is_between("5, by instance 0,5", "0", "5"));
        assert!(!is_between("0,0,7,5", "0", "5"), "somebody else's");
        assert!(!is_between("7, by instance 0,5", "0", "5"));
        assert!(!is_between("0,0,5", "0", "5,5"), "other instances than there were");
    }

    #[test]
    fn one_value_for_all_or_each_its_own() {
        for (device, instances, expected) in [
            (None, &[][..], None),
            (None, &[7, 7], Some("7")),
            (None, &[7, 8], Some("7,8")),
            (Some("2"), &[], Some("2")),
            (Some("2"), &[2, 2], Some("2")),
            (Some("2"), &[2, 0], Some("2, by instance 2,0")),
            (Some("2"), &[0], Some("2, by instance 0")),
        ] {
            let text = text(device, instances);
            assert_eq!(text.as_deref(), expected);
            let Some(text) = text else { continue };
            let (of_device, of_each) = values(&text, instances.len()).unwrap();
            assert_eq!(of_each, instances);
            assert!(device.is_none_or(|device| device == of_device));
        }
        assert_eq!(values("2, by instance 1,2", 3), None);
        assert_eq!(values("two", 1), None);
    }
}
