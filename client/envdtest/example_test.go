// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package envdtest_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/envd-go/envd/client/envdtest"
)

func Example() {
	srv := envdtest.NewServer(envdtest.WithoutRealProcesses())
	defer srv.Close()
	srv.HandleCommand("greet", func(p *envdtest.Proc) int {
		fmt.Fprintln(p.Stdout, "hi", p.Args[0])
		return 0
	})

	// Give srv.URL to a client of envd. Here, an empty listing has to do.
	res, err := srv.Client().Post(srv.URL+"/process.Process/List", "application/json", strings.NewReader("{}"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = res.Body.Close() }()
	body, _ := io.ReadAll(res.Body)
	fmt.Println(res.StatusCode, string(body))
	// Output: 200 {}
}

func ExampleServer_Inject() {
	srv := envdtest.NewPipeServer()
	defer srv.Close()
	srv.Inject(envdtest.Fault{
		Procedure: "/health",
		Status:    http.StatusServiceUnavailable,
		Body:      "the sandbox is being resumed",
	})
	for range 2 {
		res, err := srv.Client().Get(srv.URL + "/health")
		if err != nil {
			fmt.Println(err)
			return
		}
		_ = res.Body.Close()
		fmt.Println(res.Status)
	}
	// Output:
	// 503 Service Unavailable
	// 204 No Content
}
