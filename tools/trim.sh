#!/bin/sh
# Removes files that no service loads from an image's environment: `tools/trim.sh /opt/kafscale`.
# Descriptions of AWS's services but those that S3 and the credential chain need, sources and headers of compiled
# modules, tests, and the libraries of Arrow for what is not used here: its server, and its own way to S3. The Dockerfile
# imports the service afterwards, so that nothing can be missed here that it loads.
set -eu
cd "$1"/lib/python3.*/site-packages

for each in botocore/data/*/; do
    case $(basename "$each") in
        s3 | sts | sso | sso-oidc | signin) ;;
        *) rm -r "$each" ;;
    esac
done
find . -type f \( -name '*.pyx' -o -name '*.pxd' -o -name '*.pxi' -o -name '*.c' -o -name '*.h' -o -name '*.hpp' -o -name '*.pyi' \) -delete
find . -depth -type d \( -name tests -o -name __pycache__ \) -exec rm -r {} +
if [ -d pyarrow ]; then
    cd pyarrow
    rm -rf include src _flight* libarrow_flight* libarrow_python_flight* _s3fs* libarrow_s3* _gcsfs* _azurefs* _hdfs* _pyarrow_cpp_tests*
    # Three copies of the one library, as a wheel holds no links.
    for each in libarrow_python.so libarrow_python.so.*.*; do ln -sf "$(basename libarrow_python.so.????)" "$each"; done
fi
