//! Tests of KFD's nodes and process list, and of divided cards.

use super::*;
use crate::backend::drm::KfdProcess;
use crate::backend::{DeviceNode, InstanceReadings};
use crate::fd_scan::DeviceNumber;
use gpukill_proto::model::{DeviceId, InstanceId};

const TOPOLOGY: &str = "class/kfd/kfd/topology";
const PROCESSES: &str = "class/kfd/kfd/proc";

/// `c1:00.0` in KFD's encoding.
const LOCATION: u64 = 0xc100;

impl AmdTree {
    /// A node of 80 SIMDs, two for each compute unit.
    fn node(&self, name: &str, gpu_id: u32, location: u64, minor: u32) {
        let directory = format!("{TOPOLOGY}/nodes/{name}");
        self.write(&format!("{directory}/gpu_id"), format!("{gpu_id}\n"));
        self.write(
            &format!("{directory}/properties"),
            format!(
                "cpu_cores_count 0\nsimd_count 80\nsimd_per_cu 2\nlocation_id {location}\n\
                 domain 0\ndrm_render_minor {minor}\n"
            ),
        );
    }

    /// Writes a file of a process in KFD's list.
    fn process(&self, path: &str, text: &str) {
        self.write(&format!("{PROCESSES}/{path}"), text);
    }

    /// One node for the whole card.
    fn whole() -> Self {
        let tree = Self::new(&[]);
        tree.node("0", 0, 0, 0);
        tree.node("1", 4_242, LOCATION, 128);
        tree
    }
}

fn listed(pid: u32, memory: Reading<Bytes>, occupancy: Reading<Percent>) -> KfdProcess {
    KfdProcess {
        pid,
        memory,
        occupancy,
    }
}

fn number(minor: u32) -> DeviceNumber {
    DeviceNumber { major: 226, minor }
}

#[test]
fn clock_limits_fall_back_to_kfd_nodes() {
    let tree = AmdTree::whole();
    let node = format!("{TOPOLOGY}/nodes/1");
    let properties = |clock| {
        format!(
            "simd_count 80\nsimd_per_cu 2\nlocation_id {LOCATION}\ndrm_render_minor 128\nmax_engine_clk_fcompute {clock}\nmax_engine_clk_ccompute 3301\n"
        )
    };
    tree.write(&format!("{node}/properties"), properties(2_700));
    let bank = |heap, clock| {
        let text = format!("heap_type {heap}\nsize_in_bytes 1\nmem_clk_max {clock}\n");
        tree.write(&format!("{node}/mem_banks/{heap}/properties"), text);
    };
    bank(1, 800);
    // The host's memory, not the card's.
    bank(0, 6_400);
    let clocks = || {
        let vitals = tree.read_card().vitals;
        (vitals.clock_sm_max, vitals.clock_memory_max)
    };
    let megahertz = |clock| Reading::Value(Megahertz(clock));
    assert_eq!(clocks(), (megahertz(2_700), megahertz(800)));
    tree.device("pp_dpm_sclk", "0: 500Mhz *\n1: 2219Mhz\n");
    tree.device("pp_dpm_mclk", "0: 96Mhz *\n1: 1249Mhz\n");
    assert_eq!(clocks(), (megahertz(2_219), megahertz(1_249)));
    for file in ["pp_dpm_sclk", "pp_dpm_mclk"] {
        std::fs::remove_file(tree.root.path().join(DEVICE).join(file)).unwrap();
    }
    // Unknown and impossible values.
    tree.write(&format!("{node}/properties"), properties(0));
    bank(1, 20_001);
    assert_eq!(clocks(), (Reading::Unsupported, Reading::Unsupported));
}

#[test]
fn process_has_memory_and_occupancy() {
    let tree = AmdTree::whole();
    tree.process("1234/vram_4242", "1048576\n");
    tree.process("1234/stats_4242/cu_occupancy", "10\n");
    tree.process("1234/queues/0/gpuid", "4242\n");
    // Its driver does not report occupancy.
    tree.process("99/vram_4242", "4096\n");
    tree.process("99/sdma_4242", "77\n");
    assert_eq!(
        tree.read_card().kfd_processes,
        [
            listed(99, Reading::Value(Bytes(4_096)), Reading::Unsupported),
            listed(
                1_234,
                Reading::Value(Bytes(1_048_576)),
                Reading::Value(Percent(25))
            ),
        ]
    );
}

#[test]
fn processes_without_use_are_skipped() {
    let tree = AmdTree::whole();
    tree.process("7/vram_4242", "0\n");
    tree.process("7/vram_5555", "0\n");
    tree.process("8/vram_4242", "0\n");
    tree.process("8/vram_5555", "1048576\n");
    tree.process("8/queues/3/gpuid", "5555\n");
    // Files and names that are no process.
    tree.process("0/vram_4242", "1\n");
    tree.process("+5/vram_4242", "1\n");
    tree.process("self/vram_4242", "1\n");
    // A process that ended while it was read.
    std::fs::create_dir_all(tree.root.path().join(PROCESSES).join("9")).unwrap();
    assert_eq!(tree.read_card().kfd_processes, []);
}

#[test]
fn queue_without_memory_is_a_use() {
    let tree = AmdTree::whole();
    tree.process("7/vram_4242", "0\n");
    tree.process("7/queues/2/gpuid", "4242\n");
    tree.process("7/stats_4242/cu_occupancy", "0\n");
    let idle = Reading::Value(Percent(0));
    let user = listed(7, Reading::Value(Bytes(0)), idle);
    assert_eq!(tree.read_card().kfd_processes, [user]);
}

#[test]
fn process_contexts_are_summed() {
    let tree = AmdTree::whole();
    for (directory, bytes, units) in [("7", "100\n", "4\n"), ("7/context_1", "20\n", "4\n")] {
        tree.process(&format!("{directory}/vram_4242"), bytes);
        tree.process(&format!("{directory}/stats_4242/cu_occupancy"), units);
    }
    tree.process("7/context_2/queues/0/gpuid", "4242\n");
    tree.process("7/contexts/vram_4242", "5\n");
    let user = listed(7, Reading::Value(Bytes(120)), Reading::Value(Percent(20)));
    assert_eq!(tree.read_card().kfd_processes, [user]);
}

#[test]
fn impossible_kfd_values_fail() {
    let tree = AmdTree::whole();
    tree.process("7/vram_4242", "much\n");
    tree.process("7/stats_4242/cu_occupancy", "41\n");
    let user = listed(
        7,
        failed("not understood: much"),
        Reading::impossible("41 of 40"),
    );
    assert_eq!(tree.read_card().kfd_processes, [user]);
}

#[test]
fn occupancy_without_compute_units_is_unknown() {
    for simds in ["0", "18446744073709551615"] {
        let tree = AmdTree::new(&[]);
        for (name, gpu_id) in [("1", 61), ("2", 62)] {
            tree.node(name, gpu_id, LOCATION, 128);
            tree.write(
                &format!("{TOPOLOGY}/nodes/{name}/properties"),
                format!("simd_count {simds}\nsimd_per_cu 1\nlocation_id {LOCATION}\n"),
            );
        }
        tree.process("7/stats_61/cu_occupancy", "1\n");
        let user = listed(7, Reading::Unsupported, Reading::Unsupported);
        assert_eq!(tree.read_card().kfd_processes, [user], "{simds}");
    }
}

#[test]
fn occupancy_is_rounded_up() {
    let tree = AmdTree::whole();
    tree.write(
        &format!("{TOPOLOGY}/nodes/1/properties"),
        format!("simd_count 1216\nsimd_per_cu 4\nlocation_id {LOCATION}\n"),
    );
    tree.process("7/stats_4242/cu_occupancy", "1\n");
    let user = listed(7, Reading::Unsupported, Reading::Value(Percent(1)));
    assert_eq!(tree.read_card().kfd_processes, [user]);
}

#[test]
fn unreadable_list_is_a_fault() {
    let tree = AmdTree::whole();
    assert_eq!(tree.read_card().faults, []);
    tree.write(PROCESSES, "no directory");
    let readings = tree.read_card();
    let faults = readings.faults.iter().map(|fault| fault.what.as_str());
    assert_eq!(
        faults.collect::<Vec<_>>(),
        ["KFD's list of processes: not readable"]
    );
    assert_eq!(readings.kfd_processes, []);
}

#[test]
fn node_matches_by_render_node_or_address() {
    for (location, minor, is_of) in [
        (LOCATION, 128, true),
        (LOCATION, 0, true),
        (LOCATION, 129, true),
        (0x100, 128, true),
        (0x100, 129, false),
        (0xc101, 0, false),
    ] {
        let tree = AmdTree::new(&[]);
        tree.node("1", 4_242, location, minor);
        tree.process("7/vram_4242", "1\n");
        let count = usize::from(is_of);
        assert_eq!(
            tree.read_card().kfd_processes.len(),
            count,
            "{location:x} {minor}"
        );
    }
}

#[test]
fn kfd_file_is_shared() {
    let tree = AmdTree::whole();
    tree.write("class/kfd/kfd/dev", "238:0\n");
    let kfd = DeviceNode {
        name: "kfd".into(),
        number: DeviceNumber::new(238, 0),
        shared: true,
    };
    assert_eq!(tree.read_card().nodes, [kfd]);
    // A card that KFD does not know is not opened through it.
    let other = AmdTree::new(&[]);
    other.write("class/kfd/kfd/dev", "238:0\n");
    assert_eq!(other.read_card().nodes, []);
}

#[test]
fn partitions_have_their_own_files() {
    let tree = AmdTree::new(&[("current_compute_partition", "DPX\n")]);
    // The partition number is in the upper bits of the location.
    tree.node("2", 61, LOCATION | 1 << 28, 129);
    tree.node("10", 60, LOCATION, 128);
    let bank = |node: &str, bank: u32, heap: u32, size: u64| {
        tree.write(
            &format!("{TOPOLOGY}/nodes/{node}/mem_banks/{bank}/properties"),
            format!("heap_type {heap}\nsize_in_bytes {size}\nflags 0\n"),
        );
    };
    bank("10", 0, 1, 1_000);
    bank("10", 1, 2, 24);
    // A heap that is not the card's.
    bank("10", 2, 0, 5_000);
    tree.write("class/drm/renderD128/dev", "226:128\n");
    tree.write("class/drm/renderD129/dev", "226:129\n");
    tree.process("7/vram_60", "100\n");
    tree.process("7/vram_61", "20\n");
    tree.process("7/stats_61/cu_occupancy", "40\n");
    let readings = tree.read_card();
    let part = |part: u32, total| InstanceReadings {
        id: InstanceId {
            gpu: part,
            compute: 0,
        },
        uuid: DeviceId(format!("0000:c1:00.0/{part}")),
        profile: Reading::Value("DPX".into()),
        memory: MemoryReadings {
            total,
            ..MemoryReadings::unknown(&Reading::Unsupported)
        },
    };
    assert_eq!(
        readings.instances,
        [
            part(0, Reading::Value(Bytes(1_024))),
            part(1, Reading::Unsupported)
        ]
    );
    let render = DeviceNode {
        name: "renderD129".into(),
        number: number(129),
        shared: false,
    };
    assert_eq!(readings.nodes, [render]);
    let half = Reading::Value(Percent(50));
    let user = listed(7, Reading::Value(Bytes(120)), half);
    assert_eq!(readings.kfd_processes, [user]);
    assert_eq!(AmdTree::whole().read_card().instances, []);
}

#[test]
fn topology_is_reread_on_generation_change() {
    let tree = AmdTree::whole();
    let file = format!("{TOPOLOGY}/generation_id");
    tree.write(&file, "1\n");
    tree.process("7/vram_4343", "1\n");
    let (card, mut amd, now) = (tree.card(), tree.amd(), Instant::now());
    let mut users = || amd.read(&card, now).kfd_processes.len();
    assert_eq!(users(), 0);
    tree.node("1", 4_343, LOCATION, 128);
    assert_eq!(users(), 0);
    tree.write(&file, "2\n");
    assert_eq!(users(), 1);
    // Without the generation the topology is read each time.
    std::fs::remove_file(tree.root.path().join(&file)).unwrap();
    tree.node("1", 4_444, LOCATION, 128);
    assert_eq!(users(), 0);
}

#[test]
fn node_with_cores_is_integrated() {
    let tree = AmdTree::whole();
    let directory = format!("{TOPOLOGY}/nodes/1/properties");
    tree.write(
        &directory,
        "cpu_cores_count 8\nsimd_count 4\nsimd_per_cu 4\nlocation_id 49408\ndomain 0\n",
    );
    tree.process("7/vram_4242", "0\n");
    tree.process("7/queues/0/gpuid", "4242\n");
    let readings = tree.read_card();
    assert!(readings.memory.unified);
    let user = listed(7, Reading::Unsupported, Reading::Unsupported);
    assert_eq!(readings.kfd_processes, [user]);
}

#[test]
fn blocking_files_are_not_read() {
    let tree = AmdTree::whole();
    tree.process("7/vram_4242", "1\n");
    // Opening one of these blocks until a writer comes, which never happens.
    let trap = |path: String| {
        let file = tree.root.path().join(path);
        let (pipe, mode) = (rustix::fs::FileType::Fifo, 0o600.into());
        rustix::fs::mknodat(rustix::fs::CWD, file, pipe, mode, 0).unwrap();
    };
    trap(format!("{DEVICE}/pcie_bw"));
    trap(format!("{PROCESSES}/7/sdma_4242"));
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || sender.send(tree.read_card().kfd_processes.len()));
    assert_eq!(receiver.recv_timeout(Duration::from_secs(20)), Ok(1));
}
