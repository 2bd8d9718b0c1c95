// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package envdtest

// Quirk is a bug or a habit of real daemons that a client can meet. A server
// has none of them unless [WithQuirk] asks for it, whatever its version.
type Quirk int

const (
	// QuirkTagLookup is a bug of every release: a tag is looked up only as far
	// as the first process with another tag, so that with several distinct tags
	// alive just one of them is found.
	QuirkTagLookup Quirk = iota + 1
	// QuirkDropDataBeforeStart is a bug of every release: StreamInput with data
	// before start loses its connection without an answer. Without the quirk
	// the answer is invalid_argument.
	QuirkDropDataBeforeStart
	// QuirkDeadlineHang is a bug before 0.6.10: a Start whose deadline is over
	// before the start event could be sent is never answered, and the process
	// stays in the listing. Here that befalls each Start with a
	// Connect-Timeout-Ms below 10. The process is killed at once, except that 0
	// lets it run on, as in real daemons.
	QuirkDeadlineHang
	// QuirkWedgeOnHangup is a bug before 0.5.17: when a subscriber hangs up
	// while output flows, nobody reads the process's output any more, and it is
	// stuck until KILL or TERM.
	QuirkWedgeOnHangup
	// QuirkConnectHang is a bug before 0.6.12: a Connect that lands in the
	// moment of exit gets its start event and then nothing. Here the moment
	// lasts for 30 seconds after the exit.
	QuirkConnectHang
	// QuirkKeepaliveCrash is a bug of every release: a Keepalive-Ping-Interval
	// of 0 or less crashes the daemon. All connections are cut, all processes
	// and what POST /init set are forgotten; the processes run on as orphans
	// until [Server.Close]. Without the quirk the answer is invalid_argument.
	QuirkKeepaliveCrash
	// QuirkOutputInPTY is a vendor's habit: the output of a process without a
	// terminal comes in the pty field.
	QuirkOutputInPTY
	// QuirkNoEnd makes streams end cleanly without an end event.
	QuirkNoEnd
	// QuirkGroupKill is the habit of some re-implementations: signals and the
	// deadline reach the whole process group. Real processes then have a group
	// of their own.
	QuirkGroupKill
	// QuirkEndBeforeDeadline is the habit of some re-implementations: a stream
	// whose deadline killed the process has an end event before it ends with
	// deadline_exceeded.
	QuirkEndBeforeDeadline
)

var quirkNames = map[Quirk]string{
	QuirkTagLookup:           "tag-lookup",
	QuirkDropDataBeforeStart: "drop-data-before-start",
	QuirkDeadlineHang:        "deadline-hang",
	QuirkWedgeOnHangup:       "wedge-on-hangup",
	QuirkConnectHang:         "connect-hang",
	QuirkKeepaliveCrash:      "keepalive-crash",
	QuirkOutputInPTY:         "output-in-pty",
	QuirkNoEnd:               "no-end",
	QuirkGroupKill:           "group-kill",
	QuirkEndBeforeDeadline:   "end-before-deadline",
}

// Quirks returns every quirk there is.
func Quirks() []Quirk {
	all := make([]Quirk, 0, len(quirkNames))
	for q := QuirkTagLookup; q <= QuirkEndBeforeDeadline; q++ {
		all = append(all, q)
	}
	return all
}

// String returns the quirk's name, such as "tag-lookup", or "unknown".
func (q Quirk) String() string {
	if name, ok := quirkNames[q]; ok {
		return name
	}
	return "unknown"
}
