module github.com/envd-go/envd/examples/webterminal

go 1.26.0

require (
	github.com/chromedp/chromedp v0.23.1
	github.com/coder/websocket v1.8.15
	github.com/envd-go/envd v0.0.0
)

require (
	connectrpc.com/connect/v2 v2.0.2 // indirect
	github.com/chromedp/cdproto v0.160.1 // indirect
	github.com/creack/pty v1.1.24 // indirect
	github.com/fsnotify/fsnotify v1.10.1 // indirect
	github.com/go-json-experiment/json v0.0.0-20260213210345-44df1a37e875 // indirect
	golang.org/x/sys v0.50.0 // indirect
	google.golang.org/protobuf v1.36.12 // indirect
)

replace github.com/envd-go/envd => ../..
