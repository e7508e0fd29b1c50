use super::*;
use crate::fake::FakeMachine;

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
