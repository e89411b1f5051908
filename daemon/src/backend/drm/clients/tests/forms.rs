//! Tests of the report formats of each driver.

use super::*;

/// One client of one process on a card of this driver, one second after its first reading.
fn after_a_second(card: &str, slot: Option<&str>, first: &str, then: &str) -> CardUsage {
    let mut fixture = ClientFixture::with_driver(card, slot);
    fixture.open(process(7), 3, first);
    let _ = fixture.poll_next_second();
    fixture.open(process(7), 3, then);
    fixture.poll_next_second()
}

/// The expected values of a format: main, encoder, decoder; memory, host memory.
struct FdinfoForm {
    card: &'static str,
    slot: Option<&'static str>,
    first: &'static str,
    then: &'static str,
    shares: [Reading<Percent>; 3],
    has_own_memory: bool,
    memory: [Reading<Bytes>; 2],
    used_for: GpuUse,
}

const NOTHING: GpuUse = GpuUse {
    compute: false,
    graphics: false,
    mps: false,
};
const GRAPHICS: GpuUse = GpuUse {
    graphics: true,
    ..NOTHING
};
const COMPUTE: GpuUse = GpuUse {
    compute: true,
    ..NOTHING
};

#[test]
fn each_drivers_format_is_parsed() {
    let none = || Reading::Unsupported;
    let forms = [
        FdinfoForm {
            card: "amdgpu",
            slot: Some(SLOT),
            first: "drm-driver:\tamdgpu\ndrm-client-id:\t9\ndrm-pdev:\t0000:03:00.0\n\
                    drm-memory-vram:\t4 KiB\ndrm-memory-gtt: \t8 KiB\ndrm-memory-cpu: \t0 KiB\n\
                    drm-engine-gfx:\t1000 ns\n",
            then: "drm-driver:\tamdgpu\ndrm-client-id:\t9\ndrm-pdev:\t0000:03:00.0\n\
                   drm-memory-vram:\t4 KiB\ndrm-memory-gtt: \t8 KiB\ndrm-memory-cpu: \t0 KiB\n\
                   drm-engine-gfx:\t500001000 ns\ndrm-engine-jpeg:\t100000000 ns\n",
            shares: [percent(50), percent(0), percent(10)],
            has_own_memory: true,
            memory: [bytes(4096), bytes(8192)],
            used_for: GRAPHICS,
        },
        FdinfoForm {
            card: "i915",
            slot: Some("0000:00:02.0"),
            first: "drm-driver:\ti915\ndrm-client-id:\t9\ndrm-pdev:\t0000:00:02.0\n\
                    drm-total-system0:\t9 MiB\ndrm-shared-system0:\t0\n\
                    drm-active-system0:\t0\ndrm-resident-system0:\t2 MiB\n\
                    drm-engine-render:\t0 ns\ndrm-engine-copy:\t0 ns\n\
                    drm-engine-video:\t0 ns\ndrm-engine-capacity-video:\t2\n\
                    drm-engine-video-enhance:\t0 ns\n",
            then: "drm-driver:\ti915\ndrm-client-id:\t9\ndrm-pdev:\t0000:00:02.0\n\
                   drm-total-system0:\t9 MiB\ndrm-resident-system0:\t2 MiB\n\
                   drm-engine-render:\t0 ns\ndrm-engine-copy:\t120000000 ns\n\
                   drm-engine-video:\t800000000 ns\ndrm-engine-capacity-video:\t2\n\
                   drm-engine-video-enhance:\t200000000 ns\n",
            shares: [percent(20), percent(40), percent(40)],
            has_own_memory: false,
            memory: [bytes(2 << 20), bytes(2 << 20)],
            used_for: NOTHING,
        },
        FdinfoForm {
            card: "xe",
            slot: Some(SLOT),
            first: "drm-driver:\txe\ndrm-client-id:\t3\ndrm-pdev:\t0000:03:00.0\n\
                    drm-total-vram0:\t9 MiB\ndrm-resident-vram0:\t6 MiB\n\
                    drm-resident-vram1:\t1 MiB\ndrm-resident-gtt:\t192 KiB\n\
                    drm-resident-system:\t0\ndrm-resident-stolen:\t0\n\
                    drm-cycles-rcs:\t100\ndrm-total-cycles-rcs:\t1000\n\
                    drm-cycles-vcs:\t0\ndrm-total-cycles-vcs:\t1000\n\
                    drm-engine-capacity-vcs:\t2\n\
                    drm-cycles-ccs:\t0\ndrm-total-cycles-ccs:\t1000\n\
                    drm-engine-capacity-ccs:\t4\n",
            then: "drm-driver:\txe\ndrm-client-id:\t3\ndrm-pdev:\t0000:03:00.0\n\
                   drm-total-vram0:\t9 MiB\ndrm-resident-vram0:\t6 MiB\n\
                   drm-resident-vram1:\t1 MiB\ndrm-resident-gtt:\t192 KiB\n\
                   drm-resident-system:\t0\ndrm-resident-stolen:\t0\n\
                   drm-cycles-rcs:\t100\ndrm-total-cycles-rcs:\t2000\n\
                   drm-cycles-vcs:\t200\ndrm-total-cycles-vcs:\t2000\n\
                   drm-engine-capacity-vcs:\t2\n\
                   drm-cycles-ccs:\t3000\ndrm-total-cycles-ccs:\t2000\n\
                   drm-engine-capacity-ccs:\t4\n",
            shares: [percent(75), percent(10), percent(10)],
            has_own_memory: true,
            memory: [bytes(7 << 20), bytes(192 << 10)],
            used_for: GpuUse {
                compute: true,
                graphics: true,
                mps: false,
            },
        },
        FdinfoForm {
            card: "panthor",
            slot: None,
            first: "drm-driver:\tpanthor\ndrm-client-id:\t10\ndrm-engine-panthor:\t0 ns\n\
                    drm-cycles-panthor:\t0\ndrm-maxfreq-panthor:\t1000000000 Hz\n\
                    drm-resident-memory:\t16480 KiB\n",
            then: "drm-driver:\tpanthor\ndrm-client-id:\t10\ndrm-engine-panthor:\t600000000 ns\n\
                   drm-cycles-panthor:\t5\ndrm-maxfreq-panthor:\t1000000000 Hz\n\
                   drm-resident-memory:\t16480 KiB\n",
            shares: [percent(60), none(), none()],
            has_own_memory: false,
            memory: [bytes(16_480 << 10), bytes(16_480 << 10)],
            used_for: NOTHING,
        },
        // Its profiling is not enabled.
        FdinfoForm {
            card: "panthor",
            slot: None,
            first: "drm-driver:\tpanthor\ndrm-client-id:\t10\n\
                    drm-maxfreq-panthor:\t1000000000 Hz\ndrm-resident-memory:\t4\n",
            then: "drm-driver:\tpanthor\ndrm-client-id:\t10\n\
                   drm-maxfreq-panthor:\t1000000000 Hz\ndrm-resident-memory:\t4\n",
            shares: [none(), none(), none()],
            has_own_memory: false,
            memory: [bytes(4), bytes(4)],
            used_for: NOTHING,
        },
        FdinfoForm {
            card: "panfrost",
            slot: None,
            first: "drm-driver:\tpanfrost\ndrm-client-id:\t8\ndrm-cycles-fragment:\t0\n\
                    drm-maxfreq-fragment:\t800 MHz\ndrm-cycles-vertex-tiler:\t0\n\
                    drm-maxfreq-vertex-tiler:\t800 MHz\ndrm-resident-memory:\t4\n",
            then: "drm-driver:\tpanfrost\ndrm-client-id:\t8\ndrm-cycles-fragment:\t200000000\n\
                   drm-maxfreq-fragment:\t800 MHz\ndrm-cycles-vertex-tiler:\t8000000\n\
                   drm-maxfreq-vertex-tiler:\t800 MHz\ndrm-resident-memory:\t4\n",
            shares: [percent(25), none(), none()],
            has_own_memory: false,
            memory: [bytes(4), bytes(4)],
            used_for: GRAPHICS,
        },
        FdinfoForm {
            card: "msm_dpu",
            slot: None,
            first: "drm-driver:\tmsm\ndrm-client-id:\t8\ndrm-engine-gpu:\t0 ns\n\
                    drm-cycles-gpu:\t0\ndrm-maxfreq-gpu:\t800000000 Hz\n\
                    drm-resident-memory:\t4 MiB\n",
            then: "drm-driver:\tmsm\ndrm-client-id:\t8\ndrm-engine-gpu:\t70000000 ns\n\
                   drm-cycles-gpu:\t9\ndrm-maxfreq-gpu:\t800000000 Hz\n\
                   drm-resident-memory:\t4 MiB\n",
            shares: [percent(7), none(), none()],
            has_own_memory: false,
            memory: [bytes(4 << 20), bytes(4 << 20)],
            used_for: NOTHING,
        },
        FdinfoForm {
            card: "v3d",
            slot: None,
            first: "drm-driver:\tv3d\ndrm-client-id:\t8\ndrm-engine-bin:\t0 ns\n\
                    v3d-jobs-bin:\t1 jobs\ndrm-engine-render:\t0 ns\ndrm-engine-csd:\t0 ns\n\
                    drm-engine-cpu:\t0 ns\ndrm-resident-memory:\t4\n",
            then: "drm-driver:\tv3d\ndrm-client-id:\t8\ndrm-engine-bin:\t10000000 ns\n\
                   v3d-jobs-bin:\t1 jobs\ndrm-engine-render:\t0 ns\n\
                   drm-engine-csd:\t110000000 ns\ndrm-engine-cpu:\t900000000 ns\n\
                   drm-resident-memory:\t4\n",
            shares: [percent(11), none(), none()],
            has_own_memory: false,
            memory: [bytes(4), bytes(4)],
            used_for: GpuUse {
                compute: true,
                graphics: true,
                mps: false,
            },
        },
        FdinfoForm {
            card: "nouveau",
            slot: Some(SLOT),
            first: "drm-driver:\tnouveau\ndrm-client-id:\t8\ndrm-pdev:\t0000:03:00.0\n\
                    drm-resident-vram:\t4 KiB\ndrm-resident-gart:\t8 KiB\n",
            then: "drm-driver:\tnouveau\ndrm-client-id:\t8\ndrm-pdev:\t0000:03:00.0\n\
                   drm-resident-vram:\t4 KiB\ndrm-resident-gart:\t8 KiB\n",
            shares: [none(), none(), none()],
            has_own_memory: true,
            memory: [bytes(4096), bytes(8192)],
            used_for: NOTHING,
        },
        // An unknown driver that writes the standard keys.
        FdinfoForm {
            card: "unheard",
            slot: Some(SLOT),
            first: "drm-driver: unheard\ndrm-client-id: 8\ndrm-pdev: 0000:03:00.0\n\
                    drm-engine-compute: 0 ns\ndrm-engine-venc: 0 ns\n\
                    drm-resident-local0: 1 GiB\ndrm-resident-host: 1 KiB\n",
            then: "drm-driver: unheard\ndrm-client-id: 8\ndrm-pdev: 0000:03:00.0\n\
                   drm-engine-compute: 990000000 ns\ndrm-engine-venc: 30000000 ns\n\
                   drm-resident-local0: 1 GiB\ndrm-resident-host: 1 KiB\n",
            shares: [percent(99), percent(3), none()],
            has_own_memory: true,
            memory: [bytes(1 << 30), bytes(1 << 10)],
            used_for: COMPUTE,
        },
    ];
    for form in forms {
        let used = after_a_second(form.card, form.slot, form.first, form.then);
        assert_eq!(used.incomplete_reason, None, "{}", form.first);
        assert_eq!(shares(&used), form.shares, "{}", form.first);
        assert_eq!(used.has_own_memory, form.has_own_memory, "{}", form.first);
        let [client] = used.processes.as_slice() else {
            panic!("one process: {used:?}");
        };
        assert_eq!(shares_of(client), form.shares, "{}", form.first);
        let memory = [client.memory.clone(), client.host_memory.clone()];
        assert_eq!(memory, form.memory, "{}", form.first);
        assert_eq!(client.used_for, form.used_for, "{}", form.first);
    }
}

#[test]
fn other_cards_clients_are_ignored() {
    let other = "drm-driver: amdgpu\ndrm-client-id: 1\ndrm-pdev: 0000:08:00.0\n";
    let no_address = "drm-driver: xe\ndrm-client-id: 1\n";
    let accelerator = "drm-driver:\tamdxdna_accel_driver\ndrm-client-id:\t76\n\
                       drm-pdev:\t0000:c5:00.1\ndrm-engine-npu-amdxdna:\t0 ns\n";
    let plain = "pos:\t0\nflags:\t02\nmnt_id:\t24\nino:\t614\n";
    for text in [other, no_address, accelerator, plain, ""] {
        let mut fixture = ClientFixture::new();
        fixture.open(process(7), 3, text);
        let used = fixture.poll_next_second();
        assert_eq!(
            (used.processes, used.incomplete_reason),
            (vec![], None),
            "{text}"
        );
    }
    // A card that is not on the PCI bus has no client with an address.
    let mut fixture = ClientFixture::with_driver("amdgpu", None);
    fixture.open(process(7), 3, &amdgpu(1, ""));
    assert_eq!(fixture.poll_next_second().processes, []);
}

#[test]
fn only_the_cards_descriptors_are_read() {
    let mut fixture = ClientFixture::new();
    fixture.open(process(7), 3, &amdgpu(1, ""));
    fixture.open(process(7), 4, &amdgpu(2, ""));
    fixture.open(process(8), 3, &amdgpu(3, ""));
    let foreign = DeviceNumber::new(226, 129);
    for key in [process(7), process(8)] {
        let opens = fixture.found.processes.get_mut(&key).unwrap();
        opens.last_mut().unwrap().number = foreign;
    }
    // A descriptor of the card's other node counts like this one.
    fixture.found.processes.get_mut(&process(7)).unwrap()[0].number = CARD;
    let _ = fixture.poll_next_second();
    assert_eq!(fixture.clients.scan_state.clients.len(), 1);
    assert_eq!(
        memory(&fixture.poll_next_second()),
        [(7, Reading::Unsupported)]
    );
}

#[test]
fn thread_descriptor_is_read_in_its_task() {
    let mut fixture = ClientFixture::new();
    fixture.open(process(7), 3, &amdgpu(1, "drm-resident-vram: 5"));
    let opens = fixture.found.processes.get_mut(&process(7)).unwrap();
    opens[0].thread = Some(71);
    assert_eq!(fixture.poll_next_second().processes, []);
    let task = fixture.directory(7).join("task/71");
    std::fs::create_dir_all(&task).unwrap();
    std::fs::rename(fixture.directory(7).join("fdinfo"), task.join("fdinfo")).unwrap();
    assert_eq!(memory(&fixture.poll_next_second()), [(7, bytes(5))]);
}

#[test]
fn memory_needs_every_part() {
    let cases = [
        ("drm-resident-vram: 5 KiB", bytes(5 << 10)),
        ("drm-memory-vram: 5 KiB", bytes(5 << 10)),
        ("drm-total-vram: 9 KiB", Reading::Unsupported),
        (
            "drm-resident-vram: 5 parsecs",
            failed("not understood: 5 parsecs"),
        ),
        ("", Reading::Unsupported),
    ];
    for (lines, expected) in cases {
        let mut fixture = ClientFixture::new();
        fixture.open(process(6), 3, &amdgpu(1, "drm-resident-vram: 1"));
        fixture.open(process(7), 3, &amdgpu(2, lines));
        let alone = fixture.poll_next_second();
        let both = vec![(6, bytes(1)), (7, expected.clone())];
        assert_eq!(memory(&alone), both, "{lines}");
        // With another client of known memory.
        fixture.open(process(7), 4, &amdgpu(3, "drm-resident-vram: 1"));
        let sum = expected.map(|Bytes(one)| Bytes(one + 1));
        assert_eq!(
            memory(&fixture.poll_next_second()),
            [(6, bytes(1)), (7, sum)],
            "{lines}"
        );
    }
}
