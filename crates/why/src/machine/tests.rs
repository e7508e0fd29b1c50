use super::*;
use topology::fake::FakeMachine;

fn checks(fake: FakeMachine, stats: [&str; 2]) -> Vec<Check> {
    let root = tempfile::tempdir().unwrap();
    let looks = stats.map(|stat| {
        fake.clone().file("proc/stat", stat).write(root.path()).unwrap();
        Sample::read(root.path())
    });
    let machine = Machine::read_from(root.path()).unwrap();
    check(root.path(), &machine, &looks[0], &looks[1])
}

fn of<'a>(checks: &'a [Check], name: &str) -> &'a Check {
    checks.iter().find(|check| check.name == name).unwrap_or_else(|| panic!("no {name}"))
}

const IDLE: [&str; 2] = ["cpu  0 0 0 100 0 0 0 0 0 0\n", "cpu  0 0 0 300 0 0 0 0 0 0\n"];

#[test]
fn what_costs_most_comes_first() {
    let cpufreq = "sys/devices/system/cpu/cpu0/cpufreq/";
    let fake = FakeMachine::uniform(2, 8)
        .cgroup_v2("/a")
        .cgroup_file("a/cpu.max", "400000 100000")
        .file(&format!("{cpufreq}scaling_governor"), "powersave\n")
        .file(&format!("{cpufreq}scaling_driver"), "intel_pstate\n")
        .file(&format!("{cpufreq}energy_performance_preference"), "balance_power\n")
        .file("sys/devices/system/cpu/intel_pstate/no_turbo", "0\n")
        .file("sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]\n")
        .file("proc/sys/kernel/numa_balancing", "1\n")
        .file("proc/7/stat", "7 (a (b) c) R 1 1 1 0 -1 0 0 0 0 0 20 30 0 0\n");
    let stats = ["cpu  0 0 0 100 0 0 0 0 0 0\n", "cpu  60 0 0 200 0 0 0 40 0 0\n"];
    let checks = checks(fake, stats);
    let names: Vec<&str> = checks.iter().filter(|c| c.share() > 0.0).map(|c| c.name).collect();
    let expected = [
        "CPU quota",
        "other programs",
        "other machines",
        "governor",
        "huge pages",
        "NUMA balancing",
    ];
    assert_eq!(names, expected, "{checks:#?}");
    assert!((checks[0].share() - 0.75).abs() < 1e-9);
    assert!((checks[2].share() - 0.2).abs() < 1e-9);
    assert_eq!(of(&checks, "governor").seen, "powersave with balance_power (intel_pstate)");
    assert_eq!(of(&checks, "boost").state, State::Fine);
}

#[test]
fn a_machine_at_its_best_has_nothing_to_mend() {
    let fake = FakeMachine::uniform(1, 4)
        .smt(2)
        .file("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "performance\n")
        .file("sys/devices/system/cpu/cpufreq/boost", "1\n")
        .file("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n")
        .file("proc/sys/kernel/numa_balancing", "1\n");
    let checks = checks(fake, IDLE);
    assert!(checks.iter().all(|check| check.share() == 0.0), "{checks:#?}");
    assert_eq!(of(&checks, "SMT").seen, "2 threads per core, of which one is used");
    assert_eq!(of(&checks, "memory channels").state, State::Unknown);
}

#[test]
fn busy_programs_are_named() {
    let root = tempfile::tempdir().unwrap();
    let look = |stat: &str, ticks: u32| {
        let fake = FakeMachine::uniform(1, 4).file("proc/stat", stat);
        let line = format!("40009 (backup) R 1 1 1 0 -1 0 0 0 0 0 {ticks} 0 0 0\n");
        fake.file("proc/40009/stat", &line).write(root.path()).unwrap();
        Sample::read(root.path())
    };
    let (before, after) = (look(IDLE[0], 5), look("cpu  50 0 0 250 0 0 0 0 0 0\n", 55));
    let [programs, machines] = others::check(&before, &after);
    assert_eq!(programs.seen, "25 % of the machine: backup 25 %");
    let State::Costs { share, mend } = programs.state else { panic!("{programs:?}") };
    assert!((share - 0.25).abs() < 1e-9);
    assert_eq!(mend, ["sudo renice -n 19 -p 40009"]);
    assert_eq!(machines.state, State::Fine);
    let [unknown, _] = others::check(&after, &after);
    assert_eq!(unknown.state, State::Unknown);
}

#[test]
fn an_old_governor_that_saves_power_keeps_the_lowest_frequency() {
    let cpufreq = "sys/devices/system/cpu/cpu0/cpufreq/";
    let fake = FakeMachine::uniform(1, 4)
        .file(&format!("{cpufreq}scaling_governor"), "powersave\n")
        .file(&format!("{cpufreq}scaling_driver"), "acpi-cpufreq\n")
        .file(&format!("{cpufreq}cpuinfo_min_freq"), "1000000\n")
        .file(&format!("{cpufreq}cpuinfo_max_freq"), "4000000\n");
    assert!((of(&checks(fake, IDLE), "governor").share() - 0.75).abs() < 1e-9);
}

#[test]
fn the_own_work_is_nobody_elses() {
    let root = tempfile::tempdir().unwrap();
    let id = std::process::id();
    let look = |stat: &str, ticks: u32| {
        let line = format!("{id} (arclight) R 1 1 1 0 -1 0 0 0 0 0 {ticks} 0 0 0\n");
        let fake = FakeMachine::uniform(1, 4).file("proc/stat", stat);
        fake.file(&format!("proc/{id}/stat"), &line).write(root.path()).unwrap();
        Sample::read_sums(root.path())
    };
    let (before, after) = (look(IDLE[0], 0), look("cpu  150 0 0 150 0 0 0 0 0 0\n", 120));
    let [programs, _] = others::check(&before, &after);
    assert_eq!(programs.seen, "15 % of the machine");
}

/// A limit on some of the CPUs.
fn frequencies(may: &[u32]) -> FakeMachine {
    let file = |fake: FakeMachine, (cpu, khz): (usize, &u32)| {
        let dir = format!("sys/devices/system/cpu/cpu{cpu}/cpufreq/");
        fake.file(&format!("{dir}scaling_max_freq"), &format!("{khz}\n"))
            .file(&format!("{dir}cpuinfo_max_freq"), "3500000\n")
    };
    may.iter().enumerate().fold(FakeMachine::uniform(1, may.len() as u32), file)
}

#[test]
fn a_limit_of_frequency_is_told_with_the_cores_that_have_it() {
    let checks = |may: &[u32]| of(&checks(frequencies(may), IDLE), "frequency").clone();
    let all = checks(&[1_400_000; 4]);
    assert_eq!(all.seen, "the cores may run at 1.4 GHz of 3.5 GHz at most");
    assert!((all.share() - 0.6).abs() < 1e-9);
    let State::Costs { mend, .. } = &all.state else { panic!("{all:?}") };
    assert_eq!(mend[0], "sudo cpupower frequency-set -u 3500MHz");
    let one = checks(&[3_500_000, 3_500_000, 2_800_000, 3_500_000]);
    assert_eq!(one.seen, "CPUs 2 may run at 2.8 GHz of 3.5 GHz at most");
    assert!((one.share() - 0.2).abs() < 1e-9);
    let sentence = "Up to 20 % is lost to frequency: CPUs 2 may run at 2.8 GHz of 3.5 GHz at most.";
    let cause = one.cause().unwrap();
    assert_eq!((cause.text.as_str(), cause.mend.len()), (sentence, 2));
    let fine = checks(&[3_500_000; 4]);
    assert_eq!((&fine.state, fine.cause()), (&State::Fine, None));
    assert_eq!(
        of(&super::tests::checks(FakeMachine::uniform(1, 4), IDLE), "frequency").state,
        State::Unknown
    );
}

#[test]
fn a_governor_of_some_cores_is_told_with_them() {
    let mut fake = FakeMachine::uniform(1, 4);
    for (cpu, governor) in
        ["performance", "performance", "schedutil", "schedutil"].iter().enumerate()
    {
        let dir = format!("sys/devices/system/cpu/cpu{cpu}/cpufreq/");
        fake = fake
            .file(&format!("{dir}scaling_governor"), &format!("{governor}\n"))
            .file(&format!("{dir}scaling_driver"), "acpi-cpufreq\n");
    }
    assert_eq!(of(&checks(fake, IDLE), "governor").seen, "schedutil (acpi-cpufreq) on CPUs 2-3");
}

#[test]
fn cores_that_were_too_hot_are_told_with_the_time() {
    let root = tempfile::tempdir().unwrap();
    let look = |core: u64, package: u64| {
        let dir = "sys/devices/system/cpu/cpu1/thermal_throttle/";
        FakeMachine::uniform(1, 2)
            .file("proc/stat", IDLE[0])
            .file(&format!("{dir}core_throttle_total_time_ms"), &format!("{core}\n"))
            .file(&format!("{dir}package_throttle_total_time_ms"), &format!("{package}\n"))
            .write(root.path())
            .unwrap();
        clock::Heat::read(root.path())
    };
    let looks = [look(100, 0), look(100, 90), look(100, 2600)];
    let machine = Machine::read_from(root.path()).unwrap();
    let mut tree = Tree::new(root.path());
    let mut heat = |before: &clock::Heat, after: &clock::Heat| {
        clock::check(&mut tree, machine.cpus(), (before, after), 10.0)[3].clone()
    };
    // The larger of both counts, and 2.5 s is more than before.
    let hot = heat(&looks[0], &looks[2]);
    assert_eq!(hot.seen, "CPU 1 was too hot for 2.5 s of 10.0 and ran slower");
    assert!((hot.share() - 0.25).abs() < 1e-9);
    assert_eq!(heat(&looks[0], &looks[1]).state, State::Fine);
    assert_eq!(heat(&clock::Heat::default(), &looks[2]).state, State::Unknown);
}
