//! The offset between the clocks.

use fsyncscope::kernel::clock::ClockOffset;

#[test]
fn takes_the_middle_of_the_readings_around_the_wall_clock() {
    let offset = ClockOffset::between(1_000, 1_000_001_050, 1_101);
    assert_eq!(offset, ClockOffset { offset_ns: 1_000_000_000, uncertainty_ns: 51 });
    assert_eq!(offset.unix_ns(1_500), 1_000_001_500);
}

#[test]
fn times_before_1970_are_zero() {
    let offset = ClockOffset { offset_ns: -10, uncertainty_ns: 0 };
    assert_eq!((offset.unix_ns(5), offset.unix_ns(15)), (0, 5));
}

#[test]
fn samples_this_machine() {
    let offset = ClockOffset::sample().unwrap();
    let wall = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    // The monotonic clock starts at boot, so the offset is the time of the boot.
    assert!(offset.offset_ns > 0 && (offset.offset_ns as u128) < wall.as_nanos());
}
