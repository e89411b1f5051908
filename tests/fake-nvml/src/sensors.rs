//! Measurements of a GPU: utilization, temperature, power, fan and clocks.

use std::ffi::{c_uint, c_ulonglong};

use crate::code::{Answer, Code};
use crate::export::gpu_functions;
use crate::layout::{Temperature, UtilizationRates, version_tag};
use crate::out::{Out, put, put_known};
use crate::state::Clocks;

/// NVML_TEMPERATURE_GPU, the only sensor there is.
const GPU_SENSOR: c_uint = 0;

/// The measurement period of encoder and decoder. Any value would do: no known caller does more
/// than show it.
const SAMPLING_PERIOD_US: c_uint = 100_000;

gpu_functions! {
    fn nvmlDeviceGetUtilizationRates(gpu; rates: Out<UtilizationRates>) {
        let known = gpu.undivided()?.utilization.as_ref().ok_or(Code::NOT_SUPPORTED)?;
        put(UtilizationRates { gpu: known.gpu, memory: known.memory }, rates)
    }

    fn nvmlDeviceGetEncoderUtilization(gpu; percent: Out<c_uint>, period: Out<c_uint>) {
        put_known(gpu.undivided()?.encoder, percent)?;
        put(SAMPLING_PERIOD_US, period)
    }

    fn nvmlDeviceGetDecoderUtilization(gpu; percent: Out<c_uint>, period: Out<c_uint>) {
        put_known(gpu.undivided()?.decoder, percent)?;
        put(SAMPLING_PERIOD_US, period)
    }

    fn nvmlDeviceGetTemperature(gpu; sensor: c_uint, celsius: Out<c_uint>) {
        if sensor != GPU_SENSOR {
            return Err(Code::INVALID_ARGUMENT);
        }
        put_known(gpu.temperature, celsius)
    }

    fn nvmlDeviceGetTemperatureV(gpu; reading: Option<&mut Temperature>) {
        let reading = reading.ok_or(Code::INVALID_ARGUMENT)?;
        if reading.version != version_tag::<Temperature>(1) {
            return Err(Code::ARGUMENT_VERSION_MISMATCH);
        }
        if reading.sensor != GPU_SENSOR {
            return Err(Code::INVALID_ARGUMENT);
        }
        let known = gpu.temperature.ok_or(Code::NOT_SUPPORTED)?;
        reading.celsius = known.try_into().map_err(|_| Code::UNKNOWN)?;
        Ok(())
    }

    fn nvmlDeviceGetPowerUsage(gpu; milliwatts: Out<c_uint>) {
        put_known(gpu.power_mw, milliwatts)
    }

    fn nvmlDeviceGetPowerManagementLimit(gpu; milliwatts: Out<c_uint>) {
        put_known(gpu.power_limit_mw, milliwatts)
    }

    fn nvmlDeviceGetEnforcedPowerLimit(gpu; milliwatts: Out<c_uint>) {
        put_known(gpu.power_limit_mw, milliwatts)
    }

    fn nvmlDeviceGetTotalEnergyConsumption(gpu; millijoules: Out<c_ulonglong>) {
        put_known(gpu.energy_mj, millijoules)
    }

    fn nvmlDeviceGetNumFans(gpu; count: Out<c_uint>) {
        put_known(gpu.fan.map(|_| 1), count)
    }

    fn nvmlDeviceGetFanSpeed(gpu; percent: Out<c_uint>) {
        put_known(gpu.fan, percent)
    }

    fn nvmlDeviceGetFanSpeed_v2(gpu; fan: c_uint, percent: Out<c_uint>) {
        if gpu.fan.is_some() && fan != 0 {
            return Err(Code::INVALID_ARGUMENT);
        }
        put_known(gpu.fan, percent)
    }

    fn nvmlDeviceGetClockInfo(gpu; clock: c_uint, megahertz: Out<c_uint>) {
        put_clock(&gpu.clocks, clock, megahertz)
    }

    fn nvmlDeviceGetMaxClockInfo(gpu; clock: c_uint, megahertz: Out<c_uint>) {
        put_clock(&gpu.max_clocks, clock, megahertz)
    }
}

fn put_clock(clocks: &Clocks, clock: c_uint, megahertz: Out<c_uint>) -> Answer {
    let known = match clock {
        0 => clocks.graphics,
        1 => clocks.sm,
        2 => clocks.memory,
        3 => clocks.video,
        _ => return Err(Code::INVALID_ARGUMENT),
    };
    put_known(known, megahertz)
}
