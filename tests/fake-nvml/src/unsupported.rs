//! The functions about a GPU that driver 580 exports and no module here implements: each returns
//! NOT_SUPPORTED, after the handle is checked and the state file's faults are applied.
//!
//! Only the first argument is declared, the handle: the C ABIs of Linux let a caller pass more
//! arguments than a function reads. To implement one of these, remove it from the list and write it
//! in its module. Omitted, as on a driver without them: vGPU, GPM, units and functions without a
//! GPU.

use crate::code::Code;
use crate::export::gpu_functions;

macro_rules! unsupported {
    ($($name:ident)*) => {gpu_functions! {$(
        fn $name(_gpu;) {
            Err(Code::NOT_SUPPORTED)
        }
    )*}};
}

unsupported! {
    nvmlDeviceClearAccountingPids nvmlDeviceClearCpuAffinity nvmlDeviceClearEccErrorCounts
    nvmlDeviceClearFieldValues nvmlDeviceCreateGpuInstance nvmlDeviceCreateGpuInstanceWithPlacement
    nvmlDeviceFreezeNvLinkUtilizationCounter nvmlDeviceGetAPIRestriction
    nvmlDeviceGetAccountingBufferSize nvmlDeviceGetAccountingMode nvmlDeviceGetAccountingPids
    nvmlDeviceGetAccountingStats nvmlDeviceGetAdaptiveClockInfoStatus nvmlDeviceGetAddressingMode
    nvmlDeviceGetApplicationsClock nvmlDeviceGetArchitecture nvmlDeviceGetAttributes
    nvmlDeviceGetAutoBoostedClocksEnabled nvmlDeviceGetBAR1MemoryInfo nvmlDeviceGetBoardId
    nvmlDeviceGetBoardPartNumber nvmlDeviceGetBrand nvmlDeviceGetBridgeChipInfo nvmlDeviceGetBusType
    nvmlDeviceGetC2cModeInfoV nvmlDeviceGetCapabilities nvmlDeviceGetClkMonStatus nvmlDeviceGetClock
    nvmlDeviceGetClockOffsets nvmlDeviceGetConfComputeGpuAttestationReport
    nvmlDeviceGetConfComputeGpuCertificate nvmlDeviceGetConfComputeMemSizeInfo
    nvmlDeviceGetConfComputeProtectedMemoryUsage nvmlDeviceGetCoolerInfo nvmlDeviceGetCpuAffinity
    nvmlDeviceGetCpuAffinityWithinScope nvmlDeviceGetCurrentClockFreqs
    nvmlDeviceGetDefaultApplicationsClock nvmlDeviceGetDefaultEccMode nvmlDeviceGetDetailedEccErrors
    nvmlDeviceGetDramEncryptionMode nvmlDeviceGetDriverModel nvmlDeviceGetDriverModel_v2
    nvmlDeviceGetDynamicPstatesInfo nvmlDeviceGetEncoderCapacity nvmlDeviceGetEncoderSessions
    nvmlDeviceGetEncoderStats nvmlDeviceGetFBCSessions nvmlDeviceGetFBCStats
    nvmlDeviceGetFanControlPolicy_v2 nvmlDeviceGetFanSpeedRPM nvmlDeviceGetGpcClkMinMaxVfOffset
    nvmlDeviceGetGpcClkVfOffset nvmlDeviceGetGpuFabricInfo nvmlDeviceGetGpuFabricInfoV
    nvmlDeviceGetGpuInstanceById nvmlDeviceGetGpuInstancePossiblePlacements
    nvmlDeviceGetGpuInstancePossiblePlacements_v2 nvmlDeviceGetGpuInstanceProfileInfo
    nvmlDeviceGetGpuInstanceProfileInfoByIdV nvmlDeviceGetGpuInstanceProfileInfoV
    nvmlDeviceGetGpuInstanceRemainingCapacity nvmlDeviceGetGpuInstances
    nvmlDeviceGetGpuOperationMode nvmlDeviceGetGspFirmwareMode nvmlDeviceGetGspFirmwareVersion
    nvmlDeviceGetInforomConfigurationChecksum nvmlDeviceGetInforomImageVersion
    nvmlDeviceGetInforomVersion nvmlDeviceGetIrqNum nvmlDeviceGetJpgUtilization
    nvmlDeviceGetLastBBXFlushTime nvmlDeviceGetMarginTemperature nvmlDeviceGetMaxCustomerBoostClock
    nvmlDeviceGetMemClkMinMaxVfOffset nvmlDeviceGetMemClkVfOffset nvmlDeviceGetMemoryAffinity
    nvmlDeviceGetMemoryBusWidth nvmlDeviceGetMemoryErrorCounter nvmlDeviceGetMinMaxClockOfPState
    nvmlDeviceGetMinMaxFanSpeed nvmlDeviceGetModuleId nvmlDeviceGetMultiGpuBoard
    nvmlDeviceGetNumGpuCores nvmlDeviceGetNumaNodeId nvmlDeviceGetNvLinkCapability
    nvmlDeviceGetNvLinkErrorCounter nvmlDeviceGetNvLinkInfo nvmlDeviceGetNvLinkRemoteDeviceType
    nvmlDeviceGetNvLinkRemotePciInfo nvmlDeviceGetNvLinkRemotePciInfo_v2 nvmlDeviceGetNvLinkState
    nvmlDeviceGetNvLinkUtilizationControl nvmlDeviceGetNvLinkUtilizationCounter
    nvmlDeviceGetNvLinkVersion nvmlDeviceGetNvlinkBwMode nvmlDeviceGetNvlinkSupportedBwModes
    nvmlDeviceGetOfaUtilization nvmlDeviceGetP2PStatus nvmlDeviceGetPciInfo nvmlDeviceGetPciInfoExt
    nvmlDeviceGetPciInfo_v2 nvmlDeviceGetPcieLinkMaxSpeed nvmlDeviceGetPcieReplayCounter
    nvmlDeviceGetPcieSpeed nvmlDeviceGetPcieThroughput nvmlDeviceGetPdi
    nvmlDeviceGetPerformanceModes nvmlDeviceGetPgpuMetadataString nvmlDeviceGetPlatformInfo
    nvmlDeviceGetPowerManagementDefaultLimit nvmlDeviceGetPowerManagementLimitConstraints
    nvmlDeviceGetPowerManagementMode nvmlDeviceGetPowerMizerMode_v1 nvmlDeviceGetPowerSource
    nvmlDeviceGetPowerState nvmlDeviceGetProcessesUtilizationInfo nvmlDeviceGetRepairStatus
    nvmlDeviceGetRowRemapperHistogram nvmlDeviceGetRunningProcessDetailList nvmlDeviceGetSamples
    nvmlDeviceGetSramEccErrorStatus nvmlDeviceGetSramUniqueUncorrectedEccErrorCounts
    nvmlDeviceGetSupportedGraphicsClocks nvmlDeviceGetSupportedMemoryClocks
    nvmlDeviceGetSupportedPerformanceStates nvmlDeviceGetTargetFanSpeed
    nvmlDeviceGetTemperatureThreshold nvmlDeviceGetThermalSettings
    nvmlDeviceGetTopologyCommonAncestor nvmlDeviceGetTopologyNearestGpus nvmlDeviceGetVbiosVersion
    nvmlDeviceGetViolationStatus nvmlDeviceGetVirtualizationMode nvmlDeviceOnSameBoard
    nvmlDevicePowerSmoothingActivatePresetProfile nvmlDevicePowerSmoothingSetState
    nvmlDevicePowerSmoothingUpdatePresetProfileParam nvmlDeviceReadWritePRM_v1
    nvmlDeviceResetApplicationsClocks nvmlDeviceResetGpuLockedClocks
    nvmlDeviceResetMemoryLockedClocks nvmlDeviceResetNvLinkErrorCounters
    nvmlDeviceResetNvLinkUtilizationCounter nvmlDeviceSetAPIRestriction nvmlDeviceSetAccountingMode
    nvmlDeviceSetApplicationsClocks nvmlDeviceSetAutoBoostedClocksEnabled nvmlDeviceSetClockOffsets
    nvmlDeviceSetComputeMode nvmlDeviceSetConfComputeUnprotectedMemSize nvmlDeviceSetCpuAffinity
    nvmlDeviceSetDefaultAutoBoostedClocksEnabled nvmlDeviceSetDefaultFanSpeed_v2
    nvmlDeviceSetDramEncryptionMode nvmlDeviceSetDriverModel nvmlDeviceSetEccMode
    nvmlDeviceSetFanControlPolicy nvmlDeviceSetFanSpeed_v2 nvmlDeviceSetGpcClkVfOffset
    nvmlDeviceSetGpuLockedClocks nvmlDeviceSetGpuOperationMode nvmlDeviceSetMemClkVfOffset
    nvmlDeviceSetMemoryLockedClocks nvmlDeviceSetMigMode nvmlDeviceSetNvLinkDeviceLowPowerThreshold
    nvmlDeviceSetNvLinkUtilizationControl nvmlDeviceSetNvlinkBwMode nvmlDeviceSetPersistenceMode
    nvmlDeviceSetPowerManagementLimit nvmlDeviceSetPowerManagementLimit_v2
    nvmlDeviceSetPowerMizerMode_v1 nvmlDeviceSetTemperatureThreshold nvmlDeviceSetVirtualizationMode
    nvmlDeviceValidateInforom nvmlDeviceWorkloadPowerProfileClearRequestedProfiles
    nvmlDeviceWorkloadPowerProfileGetCurrentProfiles nvmlDeviceWorkloadPowerProfileGetProfilesInfo
    nvmlDeviceWorkloadPowerProfileSetRequestedProfiles
}
