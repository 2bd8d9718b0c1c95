// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package envdtest

import (
	"errors"
	"net/http"
	"runtime"
	"time"

	"github.com/envd-go/envd/internal/envdversion"
)

var errBadToken = errors.New("access token is empty or has escapes")

const mebi = 1 << 20

// usage is what the machine uses, in bytes and per cent.
type usage struct {
	memTotal, memUsed, memCache uint64
	diskTotal, diskUsed         uint64
	cpu                         float64
}

// serveMetrics shows what the machine uses, or something plausible where there
// is no way to know.
func (s *Server) serveMetrics(w http.ResponseWriter, _ *http.Request) {
	u := currentUsage()
	fields := map[string]any{
		"ts":            time.Now().Unix(),
		"cpu_count":     runtime.NumCPU(),
		"cpu_used_pct":  u.cpu,
		"mem_total_mib": u.memTotal / mebi,
		"mem_used_mib":  u.memUsed / mebi,
	}
	v := s.cfg.version
	if v.Has(envdversion.MetricsBytes) {
		fields["mem_total"], fields["mem_used"] = u.memTotal, u.memUsed
		fields["disk_total"], fields["disk_used"] = u.diskTotal, u.diskUsed
	}
	if v.Has(envdversion.MetricsCache) {
		fields["mem_cache"] = u.memCache
	}
	writeJSON(w, fields)
}
